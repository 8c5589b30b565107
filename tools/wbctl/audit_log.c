/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define LOG_NAME "audit.log"

static int is_log(const struct dirent *e)
{
        const char *end = e->d_name + sizeof(LOG_NAME) - 1;

        if (strncmp(e->d_name, LOG_NAME, sizeof(LOG_NAME) - 1) != 0)
                return 0;
        return !*end || (*end == '.' && strlen(end + 1) == 20 && strspn(end + 1, "0123456789") == 20);
}

/* By the names' numbers; the log itself is the newest. */
static int compare(const struct dirent **a, const struct dirent **b)
{
        bool a_newest = strcmp((*a)->d_name, LOG_NAME) == 0, b_newest = strcmp((*b)->d_name, LOG_NAME) == 0;

        return a_newest || b_newest ? a_newest - b_newest : strcmp((*a)->d_name, (*b)->d_name);
}

static void free_names(struct dirent **names, int n)
{
        while (n > 0)
                free(names[--n]);
        free(names);
}

/* A file as it is now, up to the end of its last whole line. */
struct view {
        char *bytes; /* private: may be written to */
        size_t mapped_n;
        size_t n;
        uint64_t inode;
};

static void view_close(struct view *v)
{
        if (v->bytes)
                (void)munmap(v->bytes, v->mapped_n);
}

static int view_open_path(const char *path, struct view *ret)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct view v = {0};
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
        v.inode = st.st_ino;
        if (st.st_size > 0) {
                const char *end;

                v.mapped_n = (size_t)st.st_size;
                v.bytes = mmap(NULL, v.mapped_n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
                if (v.bytes == MAP_FAILED)
                        return -errno;
                end = memrchr(v.bytes, '\n', v.mapped_n);
                v.n = end ? (size_t)(end + 1 - v.bytes) : 0;
        }
        *ret = v;
        return 0;
}

static int view_open(const char *dir, const char *name, struct view *ret)
{
        _cleanup_free_ char *path = NULL;

        return asprintf(&path, "%s/%s", dir, name) < 0 ? -ENOMEM : view_open_path(path, ret);
}

struct last {
        char **lines; /* newest first */
        size_t n;
        size_t wanted;
};

static int collect(const struct view *v, struct last *last, audit_log_filter filter, void *userdata)
{
        size_t end = v->n;

        while (end > 0 && last->n < last->wanted) {
                char *line_end = v->bytes + end - 1;
                char *before = memrchr(v->bytes, '\n', end - 1);
                char *line = before ? before + 1 : v->bytes;

                *line_end = '\0';
                if (filter(userdata, line)) {
                        last->lines[last->n] = strdup(line);
                        if (!last->lines[last->n])
                                return -ENOMEM;
                        last->n++;
                }
                end = (size_t)(line - v->bytes);
        }
        return 0;
}

static int collect_from_files(const char *dir, struct dirent **names, int names_n, struct last *last,
        audit_log_filter filter, void *userdata, struct audit_log_place *ret_place)
{
        int r = 0;

        for (int i = names_n - 1; i >= 0 && r == 0 && (last->n < last->wanted || i == names_n - 1); i--) {
                struct view v = {0};

                r = view_open(dir, names[i]->d_name, &v);
                if (r == 0 && i == names_n - 1)
                        *ret_place = (struct audit_log_place){.inode = v.inode, .offset = v.n};
                if (r == 0)
                        r = collect(&v, last, filter, userdata);
                view_close(&v);
        }
        return r;
}

int audit_log_last(const char *dir, size_t wanted, audit_log_filter filter, audit_log_handler handler, void *userdata,
        struct audit_log_place *ret_place)
{
        struct last last = {.lines = calloc(wanted + 1, sizeof(char *)), .wanted = wanted};
        struct dirent **names = NULL;
        int n, r;

        if (!last.lines)
                return -ENOMEM;
        n = scandir(dir, &names, is_log, compare);
        if (n < 0) {
                free(last.lines);
                return -errno;
        }
        r = n == 0 ? -ENOENT : collect_from_files(dir, names, n, &last, filter, userdata, ret_place);
        while (last.n > 0) {
                char *line = last.lines[--last.n];

                if (r == 0)
                        handler(userdata, line);
                free(line);
        }
        free(last.lines);
        free_names(names, n);
        return r;
}

static void hand_lines(const struct view *v, size_t from, audit_log_handler handler, void *userdata)
{
        while (from < v->n) {
                char *line = v->bytes + from;
                char *end = memchr(line, '\n', v->n - from);

                *end = '\0';
                from = (size_t)(end + 1 - v->bytes);
                handler(userdata, line);
        }
}

int audit_log_file(const char *path, audit_log_handler handler, void *userdata)
{
        struct view v = {0};
        int r = view_open_path(path, &v);

        if (r < 0)
                return r;
        hand_lines(&v, 0, handler, userdata);
        view_close(&v);
        return 0;
}

/*
 * Where in names the file stands that was read last; the oldest if none was; n - 1 if it is gone: what there is now is
 * new then.
 */
static int find_place(const char *dir, struct dirent **names, int n, const struct audit_log_place *place)
{
        if (!place->inode)
                return 0;
        for (int i = n - 1; i >= 0; i--) {
                _cleanup_free_ char *path = NULL;
                struct stat st;

                if (asprintf(&path, "%s/%s", dir, names[i]->d_name) >= 0 && stat(path, &st) == 0 &&
                        st.st_ino == place->inode)
                        return i;
        }
        return n - 1;
}

/* The inode of the file that is written to now; 0 if there is none. */
static uint64_t live_inode(const char *dir)
{
        _cleanup_free_ char *path = NULL;
        struct stat st;

        return asprintf(&path, "%s/" LOG_NAME, dir) >= 0 && stat(path, &st) == 0 ? st.st_ino : 0;
}

/*
 * live is what the log was before its directory was listed: if another file has that name now, the list lacks the one
 * that was rotated away meanwhile, and the new one's turn is after it, with the next list.
 */
static int read_more(const char *dir, const char *name, uint64_t live, struct audit_log_place *place,
        audit_log_handler handler, void *userdata)
{
        struct view v = {0};
        int r = view_open(dir, name, &v);

        if (r < 0)
                return r;
        if (strcmp(name, LOG_NAME) == 0 && v.inode != live) {
                view_close(&v);
                return 0;
        }
        hand_lines(&v, v.inode == place->inode ? place->offset : 0, handler, userdata);
        *place = (struct audit_log_place){.inode = v.inode, .offset = v.n};
        view_close(&v);
        return 0;
}

int audit_log_more(const char *dir, struct audit_log_place *place, audit_log_handler handler, void *userdata)
{
        struct dirent **names = NULL;
        uint64_t live = live_inode(dir);
        int n = scandir(dir, &names, is_log, compare), r = 0;

        if (n < 0)
                return -errno;
        for (int i = n > 0 ? find_place(dir, names, n, place) : 0; i < n && r == 0; i++)
                r = read_more(dir, names[i]->d_name, live, place, handler, userdata);
        free_names(names, n);
        return r == -ENOENT ? 0 : r;
}
