/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/cgroup_internal.h"
#include "proto/base/cleanup.h"

#define PERIOD_US 100000u /* cpu.max: the kernel's default period */

const char *cgroup_missing(const struct cgroup_tree *t, const struct cgroup_limits *limits)
{
        const bool wanted[CONTROLLERS] = {
                [CONTROLLER_MEMORY] = limits->memory_bytes != 0,
                [CONTROLLER_PIDS] = limits->pids != 0,
                [CONTROLLER_CPU] = limits->cpu_percent != 0,
                [CONTROLLER_IO] = limits->io_bps != 0,
        };

        for (int i = 0; i < CONTROLLERS; i++)
                if (wanted[i] && !(t && t->has[i]))
                        return cgroup_controller_names[i];
        return NULL;
}

unsigned cgroup_limits_asked(const struct cgroup_limits *limits)
{
        return (limits->pids ? CGROUP_LIMIT_PIDS : 0) | (limits->cpu_percent ? CGROUP_LIMIT_CPU : 0) |
               (limits->io_bps ? CGROUP_LIMIT_IO : 0) | (limits->memory_bytes ? CGROUP_LIMIT_MEMORY : 0);
}

/* ---- setting one */

struct number {
        char text[24];
};

static struct number number_or_max(uint64_t value)
{
        struct number n = {"max"};

        if (value)
                (void)snprintf(n.text, sizeof(n.text), "%" PRIu64, value);
        return n;
}

/* With its swap: what is bounded does not go there. */
static int limit_memory(struct cgroup_tree *t, const char *name, const struct cgroup_limits *to)
{
        int r = cgroup_write_exec(t, name, "memory.swap.max", to->memory_bytes ? "0" : "max");

        if (r < 0 && r != -ENOENT) /* a kernel without swap accounting */
                return r;
        return cgroup_write_exec(t, name, "memory.max", number_or_max(to->memory_bytes).text);
}

static int limit_pids(struct cgroup_tree *t, const char *name, const struct cgroup_limits *to)
{
        return cgroup_write_exec(t, name, "pids.max", number_or_max(to->pids).text);
}

static int limit_cpu(struct cgroup_tree *t, const char *name, const struct cgroup_limits *to)
{
        char text[48];

        (void)snprintf(text, sizeof(text), "%s %u", number_or_max((uint64_t)to->cpu_percent * PERIOD_US / 100).text,
                PERIOD_US);
        return cgroup_write_exec(t, name, "cpu.max", text);
}

static void close_dirp(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

/* What is in memory, or a file on another disk, is none. */
static bool is_disk(const char *name)
{
        return name[0] != '.' && strncmp(name, "loop", 4) != 0 && strncmp(name, "ram", 3) != 0 &&
               strncmp(name, "zram", 4) != 0;
}

/* Each disk as a whole. */
static int limit_io(struct cgroup_tree *t, const char *name, const struct cgroup_limits *to)
{
        _cleanup_(close_dirp) DIR *dir = opendir("/sys/block");
        const struct number bps = number_or_max(to->io_bps);
        struct dirent *e;
        int r = 0;

        while (r == 0 && dir && (e = readdir(dir))) {
                char path[300], device[CGROUP_FILE_BYTES], text[128];

                if (!is_disk(e->d_name))
                        continue;
                (void)snprintf(path, sizeof(path), "/sys/block/%s/dev", e->d_name);
                if (cgroup_read_at(AT_FDCWD, path, device) < 0)
                        continue;
                device[strcspn(device, "\n")] = '\0';
                (void)snprintf(text, sizeof(text), "%.31s rbps=%s wbps=%s", device, bps.text, bps.text);
                r = cgroup_write_exec(t, name, "io.max", text);
        }
        return r;
}

/* ---- setting them */

/* In the order of the bits. */
static const struct {
        unsigned bit;
        enum controller controller;
        int (*set)(struct cgroup_tree *t, const char *name, const struct cgroup_limits *to);
} kinds[] = {
        {CGROUP_LIMIT_PIDS, CONTROLLER_PIDS, limit_pids},
        {CGROUP_LIMIT_CPU, CONTROLLER_CPU, limit_cpu},
        {CGROUP_LIMIT_IO, CONTROLLER_IO, limit_io},
        {CGROUP_LIMIT_MEMORY, CONTROLLER_MEMORY, limit_memory},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

int cgroup_limit(struct cgroup_tree *t, const char *name, unsigned which, const struct cgroup_limits *to,
        const struct cgroup_limits *from, const char **ret_which)
{
        for (size_t i = 0; i < KINDS; i++) {
                if (!(which & kinds[i].bit) || !t->has[kinds[i].controller] || kinds[i].set(t, name, to) == 0)
                        continue;
                *ret_which = cgroup_controller_names[kinds[i].controller];
                for (size_t k = i + 1; k-- > 0;)
                        if (which & kinds[k].bit && t->has[kinds[k].controller])
                                (void)kinds[k].set(t, name, from);
                return CGROUP_E_REFUSED;
        }
        return 0;
}

int cgroup_tree_ceiling(struct cgroup_tree *t, uint64_t bytes)
{
        if (!t || !t->has[CONTROLLER_MEMORY])
                return -EOPNOTSUPP;
        return cgroup_write_at(t->exec_fd, "memory.max", number_or_max(bytes).text);
}

/* ---- what is in force */

uint64_t cgroup_parse_max(const char *text)
{
        return strncmp(text, "max", 3) == 0 ? 0 : strtoull(text, NULL, 10);
}

uint32_t cgroup_parse_cpu(const char *text)
{
        uint64_t quota_us = cgroup_parse_max(text), period_us;
        const char *space = strchr(text, ' ');

        period_us = space ? strtoull(space + 1, NULL, 10) : 0;
        if (quota_us == 0 || period_us == 0 || quota_us > UINT32_MAX)
                return 0;
        return (uint32_t)((quota_us * 100 + period_us - 1) / period_us);
}

uint64_t cgroup_parse_io(const char *text)
{
        uint64_t least = 0;

        for (const char *p = text; (p = strstr(p, "bps=")); p += 4) {
                uint64_t bps = cgroup_parse_max(p + 4);

                if (bps && (!least || bps < least))
                        least = bps;
        }
        return least;
}

struct cgroup_limits cgroup_limits_in_force(struct cgroup_tree *t, const char *name)
{
        struct cgroup_limits limits = {0};
        char text[CGROUP_FILE_BYTES];

        if (cgroup_read_exec(t, name, "memory.max", text) == 0)
                limits.memory_bytes = cgroup_parse_max(text);
        if (cgroup_read_exec(t, name, "pids.max", text) == 0)
                limits.pids = cgroup_parse_max(text);
        if (cgroup_read_exec(t, name, "cpu.max", text) == 0)
                limits.cpu_percent = cgroup_parse_cpu(text);
        if (cgroup_read_exec(t, name, "io.max", text) == 0)
                limits.io_bps = cgroup_parse_io(text);
        return limits;
}
