/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "broker/audit_record.h"
#include "proto/base/cleanup.h"

#define LOG_NAME "audit.log"

/* Room for the longest line, and to read a good deal at once behind it. */
#define BUFFER_BYTES (2u * AUDIT_LINE_MAX_BYTES)

/* A broker's write may be seen half done; how often and how long its other half is waited for. */
#define TORN_LOOKS    20
#define TORN_PAUSE_NS 25000000

struct file {
        char *path;
        int fd;             /* -1: not opened yet */
        uint64_t first_seq; /* of its first record, to sort by; 0: not known */
        size_t given_at;
};

struct audit_reader {
        struct file *files;
        size_t files_n;
        size_t at; /* the file that is read */
        uint64_t line;
        int looks_left;
        bool skipping; /* what remains of a line that is too long */
        size_t begin, end;
        char buffer[BUFFER_BYTES + 1];
};

static int is_rotated(const struct dirent *e)
{
        const char *digits = e->d_name + sizeof(LOG_NAME);

        return strncmp(e->d_name, LOG_NAME ".", sizeof(LOG_NAME)) == 0 && strlen(digits) == 20 &&
               strspn(digits, "0123456789") == 20;
}

static int reader_new(size_t files_most, struct audit_reader **ret)
{
        struct audit_reader *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->looks_left = TORN_LOOKS;
        r->files = calloc(files_most ? files_most : 1, sizeof(*r->files));
        if (!r->files) {
                free(r);
                return -ENOMEM;
        }
        *ret = r;
        return 0;
}

void audit_reader_free(struct audit_reader *r)
{
        if (!r)
                return;
        for (size_t i = 0; i < r->files_n; i++) {
                close_fd(r->files[i].fd);
                free(r->files[i].path);
        }
        free(r->files);
        free(r);
}

size_t audit_reader_files_n(const struct audit_reader *r)
{
        return r->files_n;
}

/* What stands in a log's directory, whoever put it there: a file, or it is not read. */
static int open_regular(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        return S_ISREG(st.st_mode) ? steal_fd(&fd) : -EINVAL;
}

/* fd may be -1; it is the reader's. */
static int add_file(struct audit_reader *r, const char *dir, const char *name, int fd)
{
        struct file *f = &r->files[r->files_n];
        int n;

        *f = (struct file){.fd = fd, .given_at = r->files_n};
        n = dir ? asprintf(&f->path, "%s/%s", dir, name) : asprintf(&f->path, "%s", name);
        if (n < 0) {
                f->path = NULL;
                close_fd(fd);
                return -ENOMEM;
        }
        r->files_n++;
        return 0;
}

/*
 * The log was opened before the directory was listed. If it has been put aside meanwhile it is among the names, and is
 * read in that place; what is newer is left for the next time.
 */
static int add_names(struct audit_reader *r, const char *dir, struct dirent **names, size_t names_n, int *log_fd)
{
        struct stat log = {0}, st;
        int error = 0;

        if (*log_fd >= 0 && fstat(*log_fd, &log) < 0)
                return -errno;
        for (size_t i = 0; i < names_n && error == 0; i++) {
                error = add_file(r, dir, names[i]->d_name, -1);
                if (error == 0 && *log_fd >= 0 && stat(r->files[i].path, &st) == 0 && st.st_ino == log.st_ino)
                        return 0;
        }
        return error == 0 && *log_fd >= 0 ? add_file(r, dir, LOG_NAME, steal_fd(log_fd)) : error;
}

int audit_reader_open_dir(const char *dir, struct audit_reader **ret)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int log_fd = -1;
        struct dirent **names = NULL;
        struct audit_reader *r = NULL;
        int n, error;

        if (asprintf(&path, "%s/" LOG_NAME, dir) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        log_fd = open_regular(path);
        if (log_fd < 0 && log_fd != -ENOENT)
                return log_fd;
        n = scandir(dir, &names, is_rotated, alphasort); /* digits of one width: their order is the records' */
        if (n < 0)
                return -errno;
        error = n == 0 && log_fd < 0 ? -ENOENT : reader_new((size_t)n + 1, &r);
        if (error == 0)
                error = add_names(r, dir, names, (size_t)n, &log_fd);
        while (n > 0)
                free(names[--n]);
        free(names);
        if (error < 0) {
                audit_reader_free(r);
                return error;
        }
        *ret = r;
        return 0;
}

/* 0 where it cannot be known without taking bytes away. */
static uint64_t find_first_seq(int fd)
{
        char text[64];
        struct stat st;
        uint64_t seq = 0;
        ssize_t n;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        n = pread(fd, text, sizeof(text), 0);
        return n > 0 && audit_record_seq(text, (size_t)n, &seq) == 0 ? seq : 0;
}

static int compare_files(const void *a, const void *b)
{
        const struct file *x = a, *y = b;

        if (x->first_seq && y->first_seq && x->first_seq != y->first_seq)
                return x->first_seq < y->first_seq ? -1 : 1;
        return x->given_at < y->given_at ? -1 : x->given_at > y->given_at;
}

static bool all_have_seq(const struct audit_reader *r)
{
        for (size_t i = 0; i < r->files_n; i++)
                if (r->files[i].first_seq == 0)
                        return false;
        return true;
}

int audit_reader_open_files(char *const *paths, size_t n, struct audit_reader **ret)
{
        struct audit_reader *r;
        int error = reader_new(n, &r);

        if (error < 0)
                return error;
        for (size_t i = 0; i < n && error == 0; i++) {
                int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

                error = fd < 0 ? -errno : 0;
                if (error == 0)
                        error = add_file(r, NULL, paths[i], fd);
                if (error == 0)
                        r->files[i].first_seq = find_first_seq(r->files[i].fd);
        }
        if (error < 0) {
                audit_reader_free(r);
                return error;
        }
        if (all_have_seq(r))
                qsort(r->files, r->files_n, sizeof(*r->files), compare_files);
        *ret = r;
        return 0;
}

/* ---- reading */

/* Reads more behind what is there; 0 at the end of the file. */
static ssize_t fill(struct audit_reader *r)
{
        struct file *f = &r->files[r->at];
        ssize_t n;

        if (f->fd < 0)
                f->fd = open_regular(f->path);
        if (f->fd < 0)
                return f->fd;
        if (r->begin > 0) {
                memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
                r->end -= r->begin;
                r->begin = 0;
        }
        do {
                n = read(f->fd, r->buffer + r->end, BUFFER_BYTES - r->end);
        } while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        r->end += (size_t)n;
        return n;
}

static int hand(struct audit_reader *r, enum audit_text_kind kind, size_t n, size_t taken, struct audit_text *ret)
{
        r->buffer[r->begin + n] = '\0';
        *ret = (struct audit_text){
                .kind = kind, .file = r->files[r->at].path, .line = ++r->line, .text = r->buffer + r->begin, .n = n};
        if (kind == AUDIT_TEXT_TOO_LONG)
                ret->n = 0;
        r->begin += taken;
        return AUDIT_READER_E_LINE;
}

/* From what is in the buffer: a line, or 0 where more has to be read. */
static int take_line(struct audit_reader *r, struct audit_text *ret)
{
        char *begin = r->buffer + r->begin, *end = memchr(begin, '\n', r->end - r->begin);
        size_t n = end ? (size_t)(end - begin) : r->end - r->begin;

        if (r->skipping) {
                r->begin += n + (end != NULL);
                r->skipping = !end;
                return end ? take_line(r, ret) : 0;
        }
        if (n > AUDIT_LINE_MAX_BYTES) {
                r->skipping = !end;
                return hand(r, AUDIT_TEXT_TOO_LONG, 0, n + (end != NULL), ret);
        }
        return end ? hand(r, AUDIT_TEXT_LINE, n, n + 1, ret) : 0;
}

/* Only the newest file may be under a broker's pen. */
static bool worth_waiting(struct audit_reader *r)
{
        const struct timespec pause = {.tv_nsec = TORN_PAUSE_NS};

        if (r->at + 1 < r->files_n || r->skipping || r->looks_left == 0)
                return false;
        r->looks_left--;
        (void)nanosleep(&pause, NULL);
        return true;
}

static void next_file(struct audit_reader *r)
{
        r->files[r->at].fd = close_fd(r->files[r->at].fd);
        r->at++;
        r->line = 0;
        r->begin = r->end = 0;
        r->skipping = false;
}

int audit_reader_next(struct audit_reader *r, struct audit_text *ret)
{
        while (r->at < r->files_n) {
                int taken = take_line(r, ret);
                ssize_t n;

                if (taken != 0)
                        return taken;
                n = fill(r);
                if (n < 0) {
                        ret->file = r->files[r->at].path;
                        return (int)n;
                }
                if (n > 0 || (r->end > r->begin && worth_waiting(r)))
                        continue;
                if (r->end > r->begin && !r->skipping)
                        return hand(r, AUDIT_TEXT_TORN, r->end - r->begin, r->end - r->begin, ret);
                next_file(r);
        }
        return 0;
}
