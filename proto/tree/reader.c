/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tree/reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define READ_BYTES WB_CHUNK_MAX_BYTES

struct reader {
        const struct tree_reader_options *options;
        const struct tree_reader_handler *handler;
        void *userdata;
        struct tree_reader_report *report;
        dev_t device;
        uint8_t *buffer;

        char path[TREE_PATH_MAX + 1]; /* of what is looked at now */
        size_t path_n;
        size_t depth;
};

static void cleanup_closedirp(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

static Wb__FileType type_of(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFDIR: return WB__FILE_TYPE__DIRECTORY;
        case S_IFLNK: return WB__FILE_TYPE__SYMLINK;
        case S_IFIFO: return WB__FILE_TYPE__FIFO;
        case S_IFSOCK: return WB__FILE_TYPE__SOCKET;
        case S_IFCHR: return WB__FILE_TYPE__CHARACTER_DEVICE;
        case S_IFBLK: return WB__FILE_TYPE__BLOCK_DEVICE;
        default: return WB__FILE_TYPE__REGULAR;
        }
}

void tree_entry_fill(Wb__FileEntry *entry, const struct stat *st)
{
        entry->type = type_of(st->st_mode);
        entry->mode = st->st_mode & 07777;
        entry->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
        entry->mtime_s = st->st_mtim.tv_sec;
        entry->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
        entry->uid = st->st_uid;
        entry->gid = st->st_gid;
        entry->device_major = major(st->st_rdev);
        entry->device_minor = minor(st->st_rdev);
        entry->links = st->st_nlink;
        entry->inode = st->st_ino;
        entry->disk_bytes = (uint64_t)st->st_blocks * 512;
}

static void begin_entry(const struct reader *r, const struct stat *st, Wb__FileEntry *e)
{
        *e = (Wb__FileEntry)WB__FILE_ENTRY__INIT;
        tree_entry_fill(e, st);
        e->path = (ProtobufCBinaryData){.len = r->path_n, .data = (uint8_t *)(uintptr_t)r->path};
}

static int tell(struct reader *r, const Wb__FileEntry *e)
{
        r->report->entries++;
        return r->handler->entry(r->userdata, e);
}

/* ---- a regular file */

/* The data from *at on, which is moved behind it. 0, 1 if there is none, or a negative errno. Filesystems that know of
 * no holes have one piece. */
static int next_piece(int fd, uint64_t size, uint64_t *at, uint64_t *ret_end)
{
        off_t start = lseek(fd, (off_t)*at, SEEK_DATA), end;

        if (start < 0 && errno == ENXIO)
                return 1;
        if (start < 0) {
                *ret_end = size;
                return 0;
        }
        end = lseek(fd, start, SEEK_HOLE);
        if ((uint64_t)start >= size)
                return 1;
        *at = (uint64_t)start;
        *ret_end = end < 0 || (uint64_t)end > size ? size : (uint64_t)end;
        return 0;
}

struct extents {
        Wb__FileExtent items[WB_EXTENTS_MAX];
        Wb__FileExtent *pointers[WB_EXTENTS_MAX];
};

/* A file that takes less than its size has holes; where they are is told at once, if they are not too many. */
static void map_extents(int fd, Wb__FileEntry *e, struct extents *x)
{
        uint64_t at = 0, end;
        size_t n = 0;

        if (e->disk_bytes >= e->size)
                return;
        while (at < e->size && next_piece(fd, e->size, &at, &end) == 0) {
                if (n == WB_EXTENTS_MAX)
                        return;
                x->items[n] = (Wb__FileExtent)WB__FILE_EXTENT__INIT;
                x->items[n].offset = at;
                x->items[n].bytes = end - at;
                x->pointers[n] = &x->items[n];
                n++;
                at = end;
        }
        e->n_extents = n;
        e->extents = x->pointers;
}

/* Up to end, or to where the file now ends. */
static int send_piece(struct reader *r, int fd, uint64_t at, uint64_t end)
{
        while (at < end) {
                size_t want = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
                ssize_t got = pread(fd, r->buffer, want, (off_t)at);
                int ret;

                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got < 0 ? -errno : 0;
                ret = r->handler->data(r->userdata, at, r->buffer, (size_t)got);
                if (ret != 0)
                        return ret;
                r->report->bytes += (uint64_t)got;
                at += (uint64_t)got;
        }
        return 0;
}

/* Files of /proc say that they are empty, and are not. */
static bool has_no_size(struct reader *r, int fd, const struct stat *st)
{
        return st->st_size == 0 && pread(fd, r->buffer, 1, 0) > 0;
}

static int read_regular(struct reader *r, int fd, const struct stat *st)
{
        struct extents extents;
        Wb__FileEntry e;
        uint64_t at = 0, end;
        int ret;

        begin_entry(r, st, &e);
        e.open_ended = has_no_size(r, fd, st);
        map_extents(fd, &e, &extents);
        ret = tell(r, &e);
        if (ret == 0 && e.open_ended)
                return send_piece(r, fd, 0, INT64_MAX);
        while (ret == 0 && at < e.size && next_piece(fd, e.size, &at, &end) == 0) {
                ret = send_piece(r, fd, at, end);
                at = end;
        }
        return ret;
}

/* ---- folders and the rest */

static int read_directory(struct reader *r, int fd, const struct stat *st);

/* What cannot be opened without side effects is told of from its outside. */
static int read_other(struct reader *r, int dir, const char *name, const struct stat *st)
{
        char target[PATH_MAX];
        Wb__FileEntry e;

        begin_entry(r, st, &e);
        if (e.type == WB__FILE_TYPE__SOCKET || (e.type != WB__FILE_TYPE__SYMLINK && !r->options->special)) {
                r->report->skipped++;
                return 0;
        }
        if (e.type == WB__FILE_TYPE__SYMLINK) {
                ssize_t n = readlinkat(dir, name, target, sizeof(target));

                if (n <= 0 || n == (ssize_t)sizeof(target))
                        return n < 0 && errno != EINVAL ? -errno : 0; /* it was replaced: not there */
                e.link = (ProtobufCBinaryData){.len = (size_t)n, .data = (uint8_t *)target};
        }
        return tell(r, &e);
}

/* name in dir, whose path is r's. What it is may change between looking and opening: what counts is what was opened. */
static int read_child(struct reader *r, int dir, const char *name)
{
        _cleanup_close_ int fd = -1;
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
                return read_other(r, dir, name, &st);
        if (r->options->one_filesystem && st.st_dev != r->device)
                return 0;
        fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return errno == ELOOP || errno == ENXIO ? -ENOENT : -errno;
        if (S_ISDIR(st.st_mode))
                return read_directory(r, fd, &st);
        return S_ISREG(st.st_mode) ? read_regular(r, fd, &st) : -ENOENT;
}

static int visit(struct reader *r, int dir, const char *name)
{
        size_t before = r->path_n, n = strlen(name);
        int ret;

        if (before + 1 + n > TREE_PATH_MAX)
                return -ENAMETOOLONG;
        if (before)
                r->path[r->path_n++] = '/';
        memcpy(r->path + r->path_n, name, n + 1);
        r->path_n += n;
        ret = read_child(r, dir, name);
        if (ret == -ENOENT || ret == -ESTALE) /* it went away */
                ret = 0;
        if (ret != 0)
                return ret; /* the path says where */
        r->path_n = before;
        r->path[before] = '\0';
        return 0;
}

static int read_names(struct reader *r, DIR *d)
{
        for (;;) {
                const struct dirent *e;
                int ret;

                errno = 0;
                e = readdir(d);
                if (!e)
                        return -errno;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                ret = visit(r, dirfd(d), e->d_name);
                if (ret != 0)
                        return ret;
        }
}

static int read_directory(struct reader *r, int fd, const struct stat *st)
{
        _cleanup_(cleanup_closedirp) DIR *d = NULL;
        _cleanup_close_ int own = -1;
        Wb__FileEntry e;
        int ret;

        if (r->depth == TREE_DEPTH_MAX)
                return -ENAMETOOLONG;
        begin_entry(r, st, &e);
        ret = tell(r, &e);
        if (ret != 0)
                return ret;
        own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a place in the list of its own */
        d = own < 0 ? NULL : fdopendir(own);
        if (!d)
                return -errno;
        (void)steal_fd(&own);
        r->depth++;
        ret = read_names(r, d);
        r->depth--;
        return ret;
}

int tree_read(int fd, const struct tree_reader_options *options, const struct tree_reader_handler *handler,
        void *userdata, struct tree_reader_report *report)
{
        _cleanup_free_ uint8_t *buffer = NULL;
        struct reader r = {.options = options, .handler = handler, .userdata = userdata, .report = report};
        struct stat st;
        int ret;

        *report = (struct tree_reader_report){0};
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode) && !options->recursive)
                return -EISDIR;
        buffer = malloc(READ_BYTES);
        if (!buffer)
                return -ENOMEM;
        r.buffer = buffer;
        r.device = st.st_dev;
        if (S_ISDIR(st.st_mode))
                ret = read_directory(&r, fd, &st);
        else if (S_ISREG(st.st_mode))
                ret = read_regular(&r, fd, &st);
        else
                ret = read_other(&r, fd, "", &st);
        if (ret == 0 && report->skipped && !report->entries)
                ret = -EOPNOTSUPP; /* what was asked for itself */
        if (ret != 0)
                memcpy(report->fault, r.path, r.path_n + 1);
        return ret;
}
