/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/evidence_source.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define FILE_MAX_BYTES (1u << 20)

/* Where v1 keeps no limit it says the largest number of pages that it can count. */
#define V1_MEMORY_NONE (UINT64_C(1) << 62)

/* ---- what the files say; 0: no ceiling */

/* "max", or a number. */
static uint64_t parse_most(const char *text)
{
        uint64_t n = strncmp(text, "max", 3) == 0 ? 0 : strtoull(text, NULL, 10);

        /* A ceiling of nothing is one. */
        return n == 0 && text[0] == '0' ? 1 : n;
}

static uint64_t parse_v1_memory(const char *text)
{
        uint64_t n = parse_most(text);

        return n >= V1_MEMORY_NONE ? 0 : n;
}

/* "QUOTA PERIOD" in microseconds; "max" or, with v1, -1 is none. */
static uint64_t parse_cpu(const char *text)
{
        uint64_t quota_us, period_us;

        if (!evidence_take_number(&text, 10, &quota_us) || !quota_us)
                return 0;
        text += *text == '\n';
        if (!evidence_take_number(&text, 10, &period_us) || !period_us)
                return 0;
        quota_us = quota_us < UINT32_MAX ? quota_us : UINT32_MAX;
        return quota_us * 1000 / period_us ? quota_us * 1000 / period_us : 1;
}

/* "8:0 rbps=max wbps=1048576 riops=max wiops=max", a line a device. */
static uint64_t parse_io(const char *text)
{
        for (const char *p = strchr(text, '='); p; p = strchr(p + 1, '='))
                if (p[1] >= '0' && p[1] <= '9')
                        return 1;
        return 0;
}

/* "8:0 1048576", a line a device. */
static uint64_t parse_v1_io(const char *text)
{
        return strchr(text, ' ') != NULL;
}

struct limit_file {
        const char *name;
        uint64_t (*parse)(const char *text);
        const char *behind; /* a file whose text goes behind the first's */
};

static const struct {
        const char *controller; /* of v1 */
        struct limit_file v2;
        struct limit_file v1[4]; /* any of these */
} controllers[] = {
        [CEILING_CPU] = {"cpu", {"cpu.max", parse_cpu, NULL}, {{"cpu.cfs_quota_us", parse_cpu, "cpu.cfs_period_us"}}},
        [CEILING_MEMORY] = {"memory", {"memory.max", parse_most, NULL},
                {{"memory.limit_in_bytes", parse_v1_memory, NULL}}},
        [CEILING_PIDS] = {"pids", {"pids.max", parse_most, NULL}, {{"pids.max", parse_most, NULL}}},
        [CEILING_IO] = {"blkio", {"io.max", parse_io, NULL},
                {{"blkio.throttle.read_bps_device", parse_v1_io, NULL},
                        {"blkio.throttle.write_bps_device", parse_v1_io, NULL},
                        {"blkio.throttle.read_iops_device", parse_v1_io, NULL},
                        {"blkio.throttle.write_iops_device", parse_v1_io, NULL}}},
};
static_assert(sizeof(controllers) / sizeof(*controllers) == CEILING_MAX_, "a ceiling has no controller");

/* ---- where a hierarchy is, and where a process is in it */

/* Is word one of a comma-separated list? */
static bool has_word(const char *list, size_t n, const char *word)
{
        size_t length = strlen(word);

        for (const char *p = list, *end = list + n; p < end;) {
                const char *comma = memchr(p, ',', (size_t)(end - p));
                size_t this_n = (size_t)((comma ? comma : end) - p);

                if (this_n == length && memcmp(p, word, length) == 0)
                        return true;
                p += this_n + 1;
        }
        return false;
}

/* The path of a line "ID:CONTROLLERS:PATH" of /proc/PID/cgroup; controller NULL: v2's. */
static int find_path(const char *text, const char *controller, char ret_path[PATH_MAX])
{
        for (const char *line = text; *line;) {
                const char *end = strchrnul(line, '\n'), *list = strchr(line, ':'), *path;

                path = list ? strchr(list + 1, ':') : NULL;
                if (!path || path > end)
                        return -EBADMSG;
                list++;
                if (controller ? has_word(list, (size_t)(path - list), controller)
                               : path == list && strncmp(line, "0:", 2) == 0) {
                        int n = snprintf(ret_path, PATH_MAX, "%.*s", (int)(end - path - 1), path + 1);

                        return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
                }
                line = *end ? end + 1 : end;
        }
        return -ENOENT;
}

struct hierarchy {
        char root[PATH_MAX]; /* the cgroup that is mounted */
        char point[PATH_MAX];
};

/* Of a line of mountinfo (proc(5)): ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS. */
static bool take_mount(const char *line, const char *controller, struct hierarchy *ret)
{
        const char *dash = strstr(line, " - ");
        char type[32], options[1024];

        if (!dash || sscanf(dash, " - %31s %*s %1023s", type, options) != 2 ||
                strcmp(type, controller ? "cgroup" : "cgroup2") != 0)
                return false;
        if (controller && !has_word(options, strlen(options), controller))
                return false;
        static_assert(PATH_MAX == 4096, "the width below is another");
        return sscanf(line, "%*d %*d %*s %4095s %4095s", ret->root, ret->point) == 2;
}

static int find_hierarchy(const char *mounts, const char *controller, struct hierarchy *ret)
{
        _cleanup_free_ char *copy = strdup(mounts);
        char *save = NULL;

        if (!copy)
                return -ENOMEM;
        for (const char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (take_mount(line, controller, ret))
                        return 0;
        return -ENOENT;
}

static bool is_below_or_same(const char *path, const char *top)
{
        size_t n = strlen(top);

        return strcmp(top, "/") == 0 || (strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/'));
}

/* ---- the limits */

static int read_text(const struct hierarchy *h, const char *below, const char *name, char **ret)
{
        _cleanup_free_ char *path = NULL;
        size_t n;

        if (asprintf(&path, "%s%s/%s", h->point, below, name) < 0)
                return -ENOMEM;
        return io_read_file(path, FILE_MAX_BYTES, ret, &n);
}

/* Of one cgroup. A file that is not there is a controller that is not on there. */
static int read_limit(const struct hierarchy *h, const char *below, const struct limit_file *file, uint64_t *ret)
{
        _cleanup_free_ char *text = NULL, *behind = NULL, *both = NULL;
        int r = read_text(h, below, file->name, &text);

        if (r == 0 && file->behind)
                r = read_text(h, below, file->behind, &behind);
        if (r < 0)
                return r == -ENOENT ? 0 : r;
        if (asprintf(&both, "%s%s", text, behind ? behind : "") < 0)
                return -ENOMEM;
        *ret = file->parse(both);
        return 0;
}

/* From the process's cgroup up to the first that the monitor is in too. */
static int walk(const struct hierarchy *h, char *path, const char *monitors, const struct limit_file *files,
        size_t files_n, uint64_t *ret)
{
        const char *root = strcmp(h->root, "/") == 0 ? "" : h->root;

        if (strstr(path, "/..") || !is_below_or_same(path, h->root))
                return -EXDEV; /* outside of what is mounted here */
        while (path[0] && !is_below_or_same(monitors, path) && is_below_or_same(path, h->root)) {
                for (size_t i = 0; i < files_n && files[i].name && !*ret; i++) {
                        int r = read_limit(h, path + strlen(root), &files[i], ret);

                        if (r < 0)
                                return r;
                }
                if (*ret)
                        return 0;
                *strrchr(path, '/') = '\0';
        }
        return 0;
}

/* v1 where the machine has this controller there, else v2. */
static int read_ceiling(const struct cgroup_sources *s, enum evidence_ceiling which, uint64_t *ret)
{
        const char *controller = controllers[which].controller;
        char path[PATH_MAX], monitors[PATH_MAX];
        struct hierarchy h;
        bool v1 = true;
        int r = find_hierarchy(s->mounts, controller, &h);

        if (r == -ENOENT) {
                v1 = false;
                controller = NULL;
                r = find_hierarchy(s->mounts, NULL, &h);
        }
        if (r == 0)
                r = find_path(s->theirs, controller, path);
        if (r == 0)
                r = find_path(s->monitors, controller, monitors);
        if (r < 0)
                return r;
        return v1 ? walk(&h, path, monitors, controllers[which].v1, 4, ret)
                  : walk(&h, path, monitors, &controllers[which].v2, 1, ret);
}

void evidence_find_cgroup(const struct cgroup_sources *s, struct evidence_cgroup *ret)
{
        char path[PATH_MAX];

        if (find_path(s->theirs, controllers[CEILING_MEMORY].controller, path) < 0 &&
                find_path(s->theirs, NULL, path) < 0) {
                ret->error = ENOENT;
                return;
        }
        (void)snprintf(ret->path, sizeof(ret->path), "%.*s", (int)sizeof(ret->path) - 1, path);
        for (int i = 0; i < CEILING_MAX_; i++)
                ret->ceiling_errors[i] = -read_ceiling(s, (enum evidence_ceiling)i, &ret->ceilings[i]);
}

void evidence_read_cgroup(int proc_fd, struct evidence_cgroup *ret)
{
        _cleanup_free_ char *theirs = NULL, *monitors = NULL, *mounts = NULL;
        int r = evidence_read_file(proc_fd, "cgroup", &theirs);

        if (r == 0)
                r = evidence_read_file(AT_FDCWD, "/proc/self/cgroup", &monitors);
        if (r == 0)
                r = evidence_read_file(AT_FDCWD, "/proc/self/mountinfo", &mounts);
        if (r < 0 || !theirs || !monitors || !mounts)
                ret->error = r < 0 ? -r : EIO;
        else
                evidence_find_cgroup(&(struct cgroup_sources){theirs, monitors, mounts}, ret);
}
