/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tree/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/tree/writer_file.h"

#define LINK_MAX_BYTES (PATH_MAX - 1)

/* A folder that is written in. Its mode and times come last: what is put into it would change them, and a mode may
 * forbid it. */
struct level {
        int fd;
        size_t path_n; /* of w->path */
        bool made;     /* by us, so that attributes are to be set */
        struct writer_attributes attributes;
};

struct tree_writer {
        struct tree_writer_options options;
        const char *name;                        /* NULL: the stream's paths */
        struct level levels[TREE_DEPTH_MAX + 2]; /* the first one is the caller's */
        size_t levels_n;
        char path[TREE_PATH_MAX + TREE_NAME_MAX + 2]; /* of the last level, with name */
        struct writer_file file;
        bool file_is_all; /* it is the stream's only entry: its root */
        struct tree_writer_report report;
        char fault[512];
};

int tree_writer_new(int dir_fd, const char *name, const struct tree_writer_options *options, struct tree_writer **ret)
{
        struct tree_writer *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->options = *options;
        w->name = name;
        w->file.fd = -1;
        w->levels[0].fd = dir_fd;
        w->levels_n = 1;
        *ret = w;
        return 0;
}

__attribute__((format(printf, 3, 4))) static int fail(struct tree_writer *w, int r, const char *format, ...)
{
        va_list ap;

        if (w->fault[0])
                return r; /* the first one counts */
        va_start(ap, format);
        (void)vsnprintf(w->fault, sizeof(w->fault), format, ap);
        va_end(ap);
        return r;
}

const char *tree_writer_fault(const struct tree_writer *w)
{
        return w->fault;
}

static struct level *top(struct tree_writer *w)
{
        return &w->levels[w->levels_n - 1];
}

/* ---- attributes */

static mode_t allowed_mode(const struct tree_writer *w, uint32_t mode)
{
        return mode & (w->options.special ? 07777u : 01777u) & ~w->options.mask;
}

static struct writer_attributes attributes_of(const struct tree_writer *w, const Wb__FileEntry *e)
{
        return (struct writer_attributes){
                .uid = w->options.keep_owner ? e->uid : w->options.uid,
                .gid = w->options.keep_owner ? e->gid : w->options.gid,
                .mode = allowed_mode(w, e->mode),
                .mtime = {.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns < 1000000000 ? e->mtime_ns : 0},
        };
}

/*
 * For what cannot be opened: symbolic links, devices, whose mode they are made with. Another file may have been put
 * where the one that was made is, a hard link to one that matters perhaps: what is changed is looked at first, and
 * held.
 */
static int set_attributes_at(int dir, const char *name, const struct writer_attributes *a, mode_t type)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, a->mtime};
        _cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if ((st.st_mode & S_IFMT) != type || st.st_nlink != 1)
                return -EBUSY;
        if ((a->uid != (uid_t)-1 || a->gid != (gid_t)-1) && fchownat(fd, "", a->uid, a->gid, AT_EMPTY_PATH) < 0)
                return -errno;
        (void)utimensat(fd, "", times, AT_EMPTY_PATH); /* from Linux 5.8 on */
        return 0;
}

/* ---- folders */

static int leave(struct tree_writer *w)
{
        struct level *l = top(w);
        int r = l->made ? writer_set_attributes(l->fd, &l->attributes) : 0;

        if (r < 0)
                (void)fail(w, r, "%.*s", (int)l->path_n, w->path);
        (void)close_fd(l->fd);
        w->levels_n--;
        w->path[top(w)->path_n] = '\0';
        return r;
}

/* A folder that somebody put where ours was is not ours to change. */
static bool is_as_made(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0777) == 0700;
}

/* Makes name in the last level, or takes what is there, and goes in. attributes NULL: a folder that the stream left
 * out. */
static int enter(struct tree_writer *w, const char *name, size_t name_n, const struct writer_attributes *attributes)
{
        struct level *up = top(w), *l;
        char text[TREE_NAME_MAX + 1];
        bool made;

        if (w->levels_n == sizeof(w->levels) / sizeof(w->levels[0]) || name_n > TREE_NAME_MAX)
                return -ENAMETOOLONG;
        memcpy(text, name, name_n);
        text[name_n] = '\0';
        made = mkdirat(up->fd, text, 0700) == 0;
        if (!made && errno != EEXIST)
                return -errno;
        l = up + 1;
        *l = (struct level){.fd = openat(up->fd, text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        if (l->fd < 0)
                return errno == ENOTDIR ? -EEXIST : -errno; /* a file, or a symbolic link, is in the place */
        l->made = made && is_as_made(l->fd);
        if (attributes)
                l->attributes = *attributes;
        else
                l->attributes = (struct writer_attributes){w->options.keep_owner ? (uid_t)-1 : w->options.uid,
                        w->options.keep_owner ? (gid_t)-1 : w->options.gid, 0755 & ~w->options.mask,
                        {.tv_nsec = UTIME_OMIT}};
        w->levels_n++;
        l->path_n = up->path_n + (up->path_n ? 1 : 0) + name_n;
        (void)sprintf(w->path + up->path_n, "%s%s", up->path_n ? "/" : "", text);
        return 0;
}

/* Is the last level on the way to path? */
static bool is_on_the_way(const struct tree_writer *w, const char *path, size_t n)
{
        size_t k = w->levels[w->levels_n - 1].path_n;

        return k == 0 || (k <= n && memcmp(w->path, path, k) == 0 && (k == n || path[k] == '/'));
}

/* Goes from where the writer is to the folder path, making what is missing. */
static int go_to(struct tree_writer *w, const char *path, size_t n)
{
        while (!is_on_the_way(w, path, n)) {
                int r = leave(w);

                if (r < 0)
                        return r;
        }
        while (top(w)->path_n < n) {
                size_t at = top(w)->path_n + (top(w)->path_n ? 1 : 0);
                const char *slash = memchr(path + at, '/', n - at);
                int r = enter(w, path + at, slash ? (size_t)(slash - path) - at : n - at, NULL);

                if (r < 0)
                        return fail(w, r, "%.*s", (int)n, path);
        }
        return 0;
}

/* ---- entries */

static int finish_file(struct tree_writer *w)
{
        int r;

        if (w->file.fd < 0)
                return 0;
        r = writer_file_finish(&w->file, w->options.synchronize && w->file_is_all);
        return r < 0 ? fail(w, r, "%s", w->file.name) : 0;
}

static int begin_file(struct tree_writer *w, const char *name, const Wb__FileEntry *e)
{
        if (e->size > INT64_MAX)
                return -EFBIG;
        w->file = (struct writer_file){
                .dir = top(w)->fd,
                .attributes = attributes_of(w, e),
                .size = e->size,
                .open_ended = e->open_ended,
        };
        memcpy(w->file.name, name, strlen(name) + 1);
        w->file_is_all = e->path.len == 0;
        return writer_file_open(&w->file);
}

static mode_t kernel_type(const Wb__FileEntry *e)
{
        switch ((int)e->type) {
        case WB__FILE_TYPE__SYMLINK: return S_IFLNK;
        case WB__FILE_TYPE__FIFO: return S_IFIFO;
        case WB__FILE_TYPE__CHARACTER_DEVICE: return S_IFCHR;
        case WB__FILE_TYPE__BLOCK_DEVICE: return S_IFBLK;
        default: return 0;
        }
}

static int make_at_once(int dir, const char *name, const Wb__FileEntry *e, mode_t mode)
{
        char target[LINK_MAX_BYTES + 1];
        int r;

        if (e->type != WB__FILE_TYPE__SYMLINK) {
                r = mknodat(dir, name, kernel_type(e) | mode, makedev(e->device_major, e->device_minor));
                return r < 0 ? -errno : 0;
        }
        if (e->link.len == 0 || e->link.len > LINK_MAX_BYTES)
                return -ENAMETOOLONG;
        memcpy(target, e->link.data, e->link.len);
        target[e->link.len] = '\0';
        return symlinkat(target, dir, name) < 0 ? -errno : 0;
}

/* Under another name first, so that it replaces what is there in one step. */
static int place_at_once(struct tree_writer *w, const char *name, const Wb__FileEntry *e)
{
        struct writer_attributes a = attributes_of(w, e);
        char temporary[WRITER_TEMPORARY_BYTES];
        int dir = top(w)->fd, r;

        writer_temporary_name(temporary);
        r = make_at_once(dir, temporary, e, a.mode);
        if (r < 0)
                return r;
        r = set_attributes_at(dir, temporary, &a, kernel_type(e));
        if (r == 0 && renameat(dir, temporary, dir, name) < 0)
                r = -errno;
        if (r < 0)
                (void)unlinkat(dir, temporary, 0);
        return r;
}

/* The folder of an earlier file of the stream; nothing on the way is followed. */
static int open_folder_of(struct tree_writer *w, const char *path, const char **ret_name, int *ret_fd)
{
        _cleanup_close_ int fd = openat(w->levels[0].fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        const char *slash;

        for (; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
                char name[TREE_NAME_MAX + 1];
                int next;

                memcpy(name, path, (size_t)(slash - path));
                name[slash - path] = '\0';
                next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                (void)close_fd(fd);
                fd = next;
        }
        if (fd < 0)
                return -errno;
        *ret_name = path;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* "name" and "a/b" to "name/a/b": what the writer calls a path of the stream. 0 or its length. */
static size_t full_path(const struct tree_writer *w, const ProtobufCBinaryData *path, char *ret)
{
        size_t n = 0;

        if (w->name)
                n = (size_t)sprintf(ret, "%s%s", w->name, path->len ? "/" : "");
        if (path->len)
                memcpy(ret + n, path->data, path->len);
        ret[n + path->len] = '\0';
        return n + path->len;
}

static int place_hard_link(struct tree_writer *w, const char *name, const Wb__FileEntry *e)
{
        char from[sizeof(w->path)], temporary[WRITER_TEMPORARY_BYTES];
        _cleanup_close_ int dir = -1;
        const char *base;
        struct stat st;
        int r;

        if (!tree_name_is_good((const char *)e->link.data, e->link.len))
                return fail(w, TREE_E_REFUSED, "a hard link that leads out of the tree");
        (void)full_path(w, &e->link, from);
        r = open_folder_of(w, from, &base, &dir);
        if (r < 0)
                return r;
        if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        writer_temporary_name(temporary);
        if (linkat(dir, base, top(w)->fd, temporary, 0) < 0)
                return -errno;
        r = renameat(top(w)->fd, temporary, top(w)->fd, name) < 0 ? -errno : 0;
        (void)unlinkat(top(w)->fd, temporary, 0); /* a name of the same file is left alone by rename(2) */
        return r;
}

static bool is_special(const Wb__FileEntry *e)
{
        return e->type == WB__FILE_TYPE__FIFO || e->type == WB__FILE_TYPE__CHARACTER_DEVICE ||
               e->type == WB__FILE_TYPE__BLOCK_DEVICE;
}

static int place_entry(struct tree_writer *w, const char *name, const Wb__FileEntry *e)
{
        struct writer_attributes attributes = attributes_of(w, e);

        w->report.entries++;
        switch ((int)e->type) {
        case WB__FILE_TYPE__REGULAR: return begin_file(w, name, e);
        case WB__FILE_TYPE__DIRECTORY: return enter(w, name, strlen(name), &attributes);
        case WB__FILE_TYPE__HARD_LINK: return place_hard_link(w, name, e);
        default: return place_at_once(w, name, e);
        }
}

int tree_writer_entry(struct tree_writer *w, const Wb__FileEntry *e)
{
        char path[sizeof(w->path)];
        const char *name;
        size_t n;
        int r = finish_file(w);

        if (r != 0)
                return r;
        if (e->path.len && !tree_name_is_good((const char *)e->path.data, e->path.len))
                return fail(w, TREE_E_REFUSED, "a path that leads out of the tree, or is none");
        if (e->type == WB__FILE_TYPE__SOCKET || (is_special(e) && !w->options.special)) {
                w->report.skipped++;
                return 0;
        }
        n = full_path(w, &e->path, path);
        if (n == 0) { /* the folder that the caller gave */
                w->report.entries += e->type == WB__FILE_TYPE__DIRECTORY;
                return e->type == WB__FILE_TYPE__DIRECTORY ? 0 : fail(w, TREE_E_REFUSED, "a file without a name");
        }
        name = memrchr(path, '/', n);
        r = go_to(w, path, name ? (size_t)(name - path) : 0);
        if (r == 0)
                r = place_entry(w, name ? name + 1 : path, e);
        return r == 0 ? 0 : fail(w, r, "%s", path);
}

int tree_writer_data(struct tree_writer *w, uint64_t offset, const uint8_t *data, size_t n)
{
        int r;

        if (w->file.fd < 0)
                return fail(w, TREE_E_REFUSED, "data that belongs to no file");
        r = writer_file_write(&w->file, offset, data, n);
        if (r == -ERANGE)
                return fail(w, TREE_E_REFUSED, "data out of order, or beyond the file's size");
        if (r < 0)
                return fail(w, r, "%s", w->file.name);
        w->report.bytes += n;
        return 0;
}

int tree_writer_end(struct tree_writer *w, struct tree_writer_report *ret)
{
        bool all_is_one_file = w->file.fd >= 0 && w->file_is_all;
        int r = finish_file(w);

        while (r == 0 && w->levels_n > 1)
                r = leave(w);
        if (r != 0)
                return r;
        if (!w->report.entries && !w->report.skipped && w->name)
                return fail(w, -ENODATA, "nothing came");
        if (w->options.synchronize && !all_is_one_file) {
                _cleanup_close_ int fd = openat(w->levels[0].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

                if (fd < 0 || syncfs(fd) < 0)
                        return fail(w, -errno, "writing to disk");
        }
        *ret = w->report;
        return 0;
}

void tree_writer_free(struct tree_writer *w)
{
        if (!w)
                return;
        writer_file_abandon(&w->file);
        while (w->levels_n > 1)
                (void)leave(w);
        free(w);
}
