/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/evidence_source.h"
#include "proto/base/cleanup.h"

#define THREADS_MAX     4096u
#define DESCENDANTS_MAX 1024u

struct status {
        uint32_t uids[4];
        uint64_t capabilities;
        uint64_t bounding;
        bool no_new_privs;
        bool filtered;
};

static void close_directory(DIR *dir)
{
        (void)closedir(dir);
}
DEFINE_CLEANUP(DIR *, close_directory);

/* What stands behind "\nKEY:", or NULL; the kernel escapes line feeds in a process's name. */
static const char *find_value(const char *text, const char *key)
{
        const char *at = text;
        size_t n = strlen(key);

        while ((at = strchr(at, '\n')) != NULL)
                if (strncmp(++at, key, n) == 0 && at[n] == ':')
                        return at + n + 1;
        return NULL;
}

static bool find_number(const char *text, const char *key, int base, uint64_t *ret)
{
        const char *at = find_value(text, key);

        return at && evidence_take_number(&at, base, ret);
}

static bool find_uids(const char *text, uint32_t ret[4])
{
        const char *at = find_value(text, "Uid");
        uint64_t uid;

        for (int i = 0; i < 4; i++) {
                if (!at || !evidence_take_number(&at, 10, &uid) || uid > UINT32_MAX)
                        return false;
                ret[i] = (uint32_t)uid;
        }
        return true;
}

static bool find_capabilities(const char *text, struct status *s)
{
        static const char *const sets[] = {"CapEff", "CapPrm", "CapInh", "CapAmb"};
        uint64_t set;

        for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
                if (!find_number(text, sets[i], 16, &set))
                        return false;
                s->capabilities |= set;
        }
        return find_number(text, "CapBnd", 16, &s->bounding);
}

static int parse_status(const char *text, struct status *ret)
{
        struct status s = {0};
        uint64_t n;

        if (!find_uids(text, s.uids) || !find_capabilities(text, &s))
                return -EBADMSG;
        s.no_new_privs = find_number(text, "NoNewPrivs", 10, &n) && n == 1;
        s.filtered = find_number(text, "Seccomp", 10, &n) && n == 2; /* SECCOMP_MODE_FILTER */
        *ret = s;
        return 0;
}

static int read_status(int dir_fd, const char *name, struct status *ret)
{
        _cleanup_free_ char *text = NULL;
        int r = evidence_read_file(dir_fd, name, &text);

        return r < 0 ? r : parse_status(text, ret);
}

static void add_thread(const struct status *s, struct evidence_threads *t)
{
        if (!t->n)
                memcpy(t->uids, s->uids, sizeof(t->uids));
        t->n++;
        t->filtered += s->filtered;
        t->bound += s->no_new_privs;
        t->other_uids += memcmp(t->uids, s->uids, sizeof(t->uids)) != 0;
        t->capabilities |= s->capabilities;
        t->bounding |= s->bounding;
}

/* NULL with errno set. */
static DIR *open_tasks(int proc_fd)
{
        int fd = openat(proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *tasks = fd < 0 ? NULL : fdopendir(fd);

        if (!tasks)
                close_fd(fd);
        return tasks;
}

/* The next thread's name; NULL behind the last, with errno as readdir() has it. */
static const char *next_task(DIR *tasks)
{
        const struct dirent *entry;

        do {
                errno = 0;
                entry = readdir(tasks);
        } while (entry && !isdigit((unsigned char)entry->d_name[0]));
        return entry ? entry->d_name : NULL;
}

static bool has_gone(int r)
{
        return r == -ENOENT || r == -ESRCH;
}

static int read_threads(int proc_fd, struct evidence_threads *t)
{
        _cleanup_(close_directoryp) DIR *tasks = open_tasks(proc_fd);
        const char *task;
        int r;

        if (!tasks)
                return -errno;
        while ((task = next_task(tasks)) != NULL) {
                struct status status;
                char name[300];

                if (t->n == THREADS_MAX)
                        return -E2BIG;
                (void)snprintf(name, sizeof(name), "%s/status", task);
                r = read_status(dirfd(tasks), name, &status);
                if (r == 0)
                        add_thread(&status, t);
                else if (!has_gone(r))
                        return r;
        }
        if (errno)
                return -errno;
        return t->n ? 0 : -ESRCH;
}

void evidence_read_threads(int proc_fd, struct evidence_threads *ret)
{
        struct evidence_threads t = {0};
        int r = read_threads(proc_fd, &t);

        if (r < 0)
                t = (struct evidence_threads){.error = -r};
        *ret = t;
}

/* ---- gVisor's processes */

/* `runsc-sandbox ... boot ...`; its helper for files is `runsc-gofer ... gofer ...`. */
static int find_boot(int proc_fd, bool *ret_found)
{
        _cleanup_close_ int fd = openat(proc_fd, "cmdline", O_RDONLY | O_CLOEXEC);
        char text[16384];
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

        if (n < 0)
                return -errno;
        text[n] = '\0';
        *ret_found = false;
        for (const char *p = text; p < text + n && !*ret_found; p += strlen(p) + 1)
                *ret_found = strcmp(p, "boot") == 0 || strcmp(p, "runsc-sandbox") == 0;
        return 0;
}

struct descendants {
        int pids[DESCENDANTS_MAX];
        size_t n;
};

static int add_children(const char *text, struct descendants *d)
{
        uint64_t pid;

        while (evidence_take_number(&text, 10, &pid)) {
                if (d->n == DESCENDANTS_MAX)
                        return -E2BIG;
                d->pids[d->n++] = (int)pid;
        }
        return 0;
}

/* The children of each thread: a child belongs to the one that forked it. */
static int find_children(int proc_fd, struct descendants *d)
{
        _cleanup_(close_directoryp) DIR *tasks = open_tasks(proc_fd);
        const char *task;
        int r = 0;

        if (!tasks)
                return -errno;
        while (r == 0 && (task = next_task(tasks)) != NULL) {
                _cleanup_free_ char *text = NULL;
                char name[300];

                (void)snprintf(name, sizeof(name), "%s/children", task);
                r = evidence_read_file(dirfd(tasks), name, &text);
                if (r == 0 && text)
                        r = add_children(text, d);
                else if (r == -ESRCH)
                        r = 0;
        }
        return r;
}

static int read_descendants(int proc_fd, struct evidence_threads *t)
{
        struct descendants d = {.n = 0};
        int r = find_children(proc_fd, &d);

        for (size_t i = 0; i < d.n && r == 0; i++) {
                struct evidence_threads child = {0};
                _cleanup_close_ int fd = -1;
                char path[32];

                (void)snprintf(path, sizeof(path), "/proc/%d", d.pids[i]);
                fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                r = fd < 0 ? -errno : read_threads(fd, &child);
                if (r == 0) {
                        t->children++;
                        t->children_unfiltered += child.filtered != child.n;
                        r = find_children(fd, &d);
                }
                if (has_gone(r))
                        r = 0;
        }
        return r;
}

void evidence_read_sandbox(int proc_fd, struct evidence_threads *t)
{
        int r = find_boot(proc_fd, &t->is_gvisor_sandbox);

        if (r == 0 && t->is_gvisor_sandbox)
                r = read_descendants(proc_fd, t);
        if (r < 0)
                *t = (struct evidence_threads){.error = -r};
}
