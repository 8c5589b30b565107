/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "proto/base/cleanup.h"

#define LINKS_MAX 40 /* as the kernel's own (namei.h, MAXSYMLINKS) */

static int open_beneath(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
        struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_MAGICLINKS};
        int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

        return fd < 0 ? -errno : fd;
}

/* "/a//./b/" to "a/b", "/" to ".". */
int place_normalize(const ProtobufCBinaryData *path, char ret[PLACE_PATH_MAX])
{
        const char *p = (const char *)path->data, *end = p + path->len;
        size_t n = 0;

        if (path->len == 0 || *p != '/')
                return -EINVAL;
        if (path->len >= PLACE_PATH_MAX)
                return -ENAMETOOLONG;
        while (p < end) {
                const char *slash = memchr(p, '/', (size_t)(end - p));
                size_t k = (size_t)((slash ? slash : end) - p);

                if (k == 2 && p[0] == '.' && p[1] == '.')
                        return -EINVAL;
                if (k > TREE_NAME_MAX)
                        return -ENAMETOOLONG;
                if (k && !(k == 1 && p[0] == '.')) {
                        if (n)
                                ret[n++] = '/';
                        memcpy(ret + n, p, k);
                        n += k;
                }
                p += k + (slash ? 1 : 0);
        }
        if (n == 0)
                ret[n++] = '.';
        ret[n] = '\0';
        return 0;
}

/* ---- without a root: component by component, by a rule on symbolic links */

struct walk {
        int fd;                    /* of the folder we are in */
        char rest[PLACE_PATH_MAX]; /* of the path */
        unsigned links;
};

/* Only root can have made it: the link is root's, and so is the folder, which nobody else may write. */
static bool is_trusted(int dir, const struct stat *link)
{
        struct stat st;

        return link->st_uid == 0 && fstat(dir, &st) == 0 && st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Puts where the link leads before the rest of the path. */
static int take_link(struct walk *w, int link_fd, const struct stat *st)
{
        char target[PLACE_PATH_MAX], joined[PLACE_PATH_MAX];
        ssize_t n;

        if (++w->links > LINKS_MAX || !is_trusted(w->fd, st))
                return -ELOOP;
        n = readlinkat(link_fd, "", target, sizeof(target) - 1);
        if (n <= 0)
                return n < 0 ? -errno : -ENOENT;
        target[n] = '\0';
        if (target[0] == '/') {
                int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

                if (root < 0)
                        return -errno;
                (void)close_fd(w->fd);
                w->fd = root;
        }
        n = snprintf(joined, sizeof(joined), "%s%s%s", target, w->rest[0] ? "/" : "", w->rest);
        if ((size_t)n >= sizeof(joined))
                return -ENAMETOOLONG;
        memcpy(w->rest, joined, (size_t)n + 1);
        return 0;
}

/* Cuts the first component off the rest. False if there is none. */
static bool next_component(struct walk *w, char ret[TREE_NAME_MAX + 1], int *ret_error)
{
        size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");

        *ret_error = n > TREE_NAME_MAX ? -ENAMETOOLONG : 0;
        if (n == 0 || *ret_error < 0)
                return false;
        memcpy(ret, w->rest + skip, n);
        ret[n] = '\0';
        skip += n;
        skip += strspn(w->rest + skip, "/");
        memmove(w->rest, w->rest + skip, strlen(w->rest + skip) + 1);
        return true;
}

static int step(struct walk *w, const char *name)
{
        _cleanup_close_ int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (S_ISLNK(st.st_mode))
                return take_link(w, fd, &st);
        if (w->rest[0] && !S_ISDIR(st.st_mode))
                return -ENOTDIR;
        (void)close_fd(w->fd);
        w->fd = steal_fd(&fd);
        return 0;
}

static int walk(const char *path, int *ret_fd)
{
        struct walk w = {.fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
        char name[TREE_NAME_MAX + 1];
        int r = w.fd < 0 ? -errno : 0, error = 0;

        (void)snprintf(w.rest, sizeof(w.rest), "%s", path);
        while (r == 0 && next_component(&w, name, &error))
                r = step(&w, name);
        if (r == 0)
                r = error;
        if (r == 0)
                *ret_fd = steal_fd(&w.fd);
        (void)close_fd(w.fd);
        return r;
}

/* path is normalized. The kernel does it at once where there is no link on the way. */
static int open_everywhere(const char *path, int *ret_fd)
{
        _cleanup_close_ int top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd;

        if (top < 0)
                return -errno;
        fd = open_beneath(top, path, O_PATH, RESOLVE_NO_SYMLINKS);
        if (fd == -ELOOP || fd == -ENOSYS || fd == -EPERM)
                return walk(path, ret_fd);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        return 0;
}

/* ---- both */

static int open_within(const ProtobufCBinaryData *root, const char *path, int *ret_fd)
{
        _cleanup_close_ int top = -1;
        char normal[PLACE_PATH_MAX];
        int r;

        if (root->len == 0)
                return open_everywhere(path, ret_fd);
        r = place_normalize(root, normal);
        if (r == 0)
                r = open_everywhere(normal, &top);
        if (r < 0)
                return r;
        r = open_beneath(top, path, O_PATH, RESOLVE_IN_ROOT);
        if (r < 0)
                return r;
        *ret_fd = r;
        return 0;
}

int place_open(const Wb__FilePlace *place, int *ret_fd)
{
        char path[PLACE_PATH_MAX];
        int r = place ? place_normalize(&place->path, path) : -EINVAL;

        return r < 0 ? r : open_within(&place->root, path, ret_fd);
}

int place_open_parent(const Wb__FilePlace *place, int *ret_fd, char ret_name[TREE_NAME_MAX + 1])
{
        char path[PLACE_PATH_MAX], *slash;
        const char *name;
        int r = place ? place_normalize(&place->path, path) : -EINVAL;

        if (r < 0)
                return r;
        slash = strrchr(path, '/');
        name = slash ? slash + 1 : path;
        if (slash)
                *slash = '\0';
        r = open_within(&place->root, slash ? path : ".", ret_fd);
        if (r == 0)
                memcpy(ret_name, name, strlen(name) + 1);
        return r;
}

int place_reopen(int path_fd, int flags, int *ret_fd)
{
        char path[32];
        int fd;

        if (flags & O_DIRECTORY) {
                fd = openat(path_fd, ".", flags | O_CLOEXEC);
        } else {
                (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
                fd = open(path, flags | O_CLOEXEC);
        }
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}
