/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "broker/audit_record.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"

#define FILE_NAME          "audit.log"
#define SEQ_DIGITS         20
#define ROTATED_NAME_BYTES (sizeof(FILE_NAME) + SEQ_DIGITS + 1)
#define FILE_MODE          0640
#define PROBE_BYTES        65536

/* The end of the file, at most AUDIT_LINE_MAX_BYTES. */
static int read_tail(int fd, uint64_t size_bytes, char **ret_text, size_t *ret_n)
{
        size_t want = size_bytes < AUDIT_LINE_MAX_BYTES ? (size_t)size_bytes : AUDIT_LINE_MAX_BYTES, n = 0;
        _cleanup_free_ char *text = malloc(want + 1);

        if (!text)
                return -ENOMEM;
        while (n < want) {
                ssize_t got = pread(fd, text + n, want - n, (off_t)(size_bytes - want + n));

                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got < 0 ? -errno : -EIO;
                n += (size_t)got;
        }
        *ret_text = STEAL(text);
        *ret_n = n;
        return 0;
}

struct last_record {
        uint64_t seq; /* 0: the file has none */
        struct audit_hash hash;
        uint64_t end_bytes; /* where the last whole line ends */
};

static int read_last(int fd, struct last_record *ret)
{
        _cleanup_free_ char *text = NULL;
        struct last_record last = {0};
        size_t n = 0, body_n;
        struct stat st;
        const char *end, *begin;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        r = read_tail(fd, (uint64_t)st.st_size, &text, &n);
        if (r < 0)
                return r;
        end = memrchr(text, '\n', n);
        if (!end && n >= AUDIT_LINE_MAX_BYTES)
                return -EBADMSG;
        if (end) {
                begin = memrchr(text, '\n', (size_t)(end - text));
                begin = begin ? begin + 1 : text;
                r = audit_record_seq(begin, (size_t)(end - begin), &last.seq);
                if (r == 0)
                        r = audit_record_split(begin, (size_t)(end - begin), &body_n, &last.hash);
                if (r < 0)
                        return r;
        }
        last.end_bytes = (uint64_t)st.st_size - (n - (end ? (size_t)(end + 1 - text) : 0));
        *ret = last;
        return 0;
}

/* "audit.log." and SEQ_DIGITS digits. */
static bool parse_rotated_name(const char *name, uint64_t *ret)
{
        const char *digits = name + sizeof(FILE_NAME);

        if (strncmp(name, FILE_NAME ".", sizeof(FILE_NAME)) != 0 || strlen(digits) != SEQ_DIGITS)
                return false;
        return parse_u64(digits, UINT64_MAX, ret) == 0;
}

static void rotated_name(uint64_t seq, char ret_name[ROTATED_NAME_BYTES])
{
        (void)snprintf(ret_name, ROTATED_NAME_BYTES, FILE_NAME ".%020" PRIu64, seq);
}

/* The greatest SEQ among the files that were put aside. */
static int find_rotated_seq(int dir_fd, uint64_t *ret)
{
        int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        uint64_t most = 0, seq;

        if (!dir) {
                int r = -errno;

                close_fd(copy);
                return r;
        }
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                if (parse_rotated_name(e->d_name, &seq) && seq > most)
                        most = seq;
        (void)closedir(dir);
        *ret = most;
        return 0;
}

/* The chain goes on behind the newest of the files that were put aside. */
static int continue_rotated(struct audit_file *f)
{
        _cleanup_close_ int fd = -1;
        char name[ROTATED_NAME_BYTES];
        struct last_record last;
        int r = find_rotated_seq(f->dir_fd, &f->seq);

        if (r < 0 || f->seq == 0)
                return r;
        rotated_name(f->seq, name);
        fd = openat(f->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        r = fd < 0 ? -errno : read_last(fd, &last);
        if (r < 0)
                return log_errno(r, "the audit log's %s", name);
        f->hash = last.hash;
        return 0;
}

static int open_log(struct audit_file *f)
{
        _cleanup_close_ int fd =
                openat(f->dir_fd, FILE_NAME, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
        struct last_record last;
        struct stat st;
        int r;

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        r = read_last(fd, &last);
        if (r < 0)
                return r;
        if (last.end_bytes < (uint64_t)st.st_size) {
                f->cut_bytes = (uint64_t)st.st_size - last.end_bytes;
                log_warning("the audit log ends in half a record; %" PRIu64 " bytes are cut off", f->cut_bytes);
                if (ftruncate(fd, (off_t)last.end_bytes) < 0)
                        return -errno;
        }
        if (last.seq > f->seq) {
                f->seq = last.seq;
                f->hash = last.hash;
        }
        f->size_bytes = last.end_bytes;
        f->torn = false;
        f->fd = steal_fd(&fd);
        return 0;
}

int audit_file_open(struct audit_file *f, const char *dir, uint64_t rotate_bytes)
{
        int r;

        *f = (struct audit_file){.dir_fd = -1, .fd = -1, .rotate_bytes = rotate_bytes};
        f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (f->dir_fd < 0)
                return -errno;
        if (flock(f->dir_fd, LOCK_EX | LOCK_NB) < 0) {
                r = errno == EWOULDBLOCK ? -EBUSY : -errno;
                goto fail;
        }
        r = continue_rotated(f);
        if (r < 0)
                goto fail;
        r = open_log(f);
        if (r < 0)
                goto fail;
        return 0;
fail:
        audit_file_close(f);
        return r;
}

void audit_file_close(struct audit_file *f)
{
        f->fd = close_fd(f->fd);
        f->dir_fd = close_fd(f->dir_fd);
}

bool audit_file_is_full(const struct audit_file *f, size_t pending_n, size_t n)
{
        uint64_t used = f->size_bytes + pending_n;

        return used && used + n > f->rotate_bytes;
}

int audit_file_rotate(struct audit_file *f)
{
        char name[ROTATED_NAME_BYTES];
        int r = audit_file_sync(f);

        if (r < 0)
                return r;
        rotated_name(f->seq, name);
        if (renameat(f->dir_fd, FILE_NAME, f->dir_fd, name) < 0)
                return -errno;
        f->fd = close_fd(f->fd);
        return open_log(f);
}

int audit_file_prepare(struct audit_file *f)
{
        struct stat st;

        if (f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_nlink == 0) {
                log_warning("the audit log was deleted; a new one is begun");
                f->fd = close_fd(f->fd);
        }
        if (f->fd >= 0 && f->torn) {
                if (ftruncate(f->fd, (off_t)f->size_bytes) < 0)
                        return -errno;
                f->torn = false;
        }
        return f->fd < 0 ? open_log(f) : 0;
}

int audit_file_append(
        struct audit_file *f, const char *lines, size_t n, uint64_t last_seq, const struct audit_hash *last_hash)
{
        int r = io_write_full(f->fd, lines, n);

        if (r < 0) {
                f->torn = ftruncate(f->fd, (off_t)f->size_bytes) < 0;
                return r;
        }
        f->size_bytes += n;
        f->seq = last_seq;
        f->hash = *last_hash;
        return 0;
}

int audit_file_sync(struct audit_file *f)
{
        return f->fd >= 0 && fdatasync(f->fd) < 0 ? -errno : 0;
}

int audit_file_probe(struct audit_file *f)
{
        int r = audit_file_prepare(f);

        if (r < 0)
                return r;
        /* Blocks beyond the end stay reserved for the records to come. A file system that cannot do this is found out
         * by writing. */
        if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)f->size_bytes, PROBE_BYTES) < 0 && errno != EOPNOTSUPP)
                return -errno;
        return 0;
}
