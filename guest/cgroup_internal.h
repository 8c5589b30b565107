/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the cgroup tree share: cgroup.c (the tree, and what is in it), cgroup_limit.c (what bounds it). */

#include <stdbool.h>
#include <stdint.h>

#include "guest/cgroup.h"

#define CGROUP_FILE_BYTES 1024 /* the largest that is read is memory.events */

enum controller {
        CONTROLLER_MEMORY,
        CONTROLLER_PIDS,
        CONTROLLER_CPU,
        CONTROLLER_IO,
        CONTROLLERS,
};
extern const char *const cgroup_controller_names[CONTROLLERS];

struct cgroup_tree {
        int exec_fd; /* the directory of all execs */
        bool has[CONTROLLERS];
};

/* A file of the exec's cgroup, below exec_fd. */
struct cgroup_path {
        char text[256];
};
struct cgroup_path cgroup_in_exec(const char *name, const char *file);

/* 0 or a negative errno. */
int cgroup_write_at(int dir_fd, const char *path, const char *text);
int cgroup_read_at(int dir_fd, const char *path, char text[CGROUP_FILE_BYTES]);
int cgroup_write_exec(struct cgroup_tree *t, const char *name, const char *file, const char *text);
int cgroup_read_exec(struct cgroup_tree *t, const char *name, const char *file, char text[CGROUP_FILE_BYTES]);

/*
 * The kernel's files as limits, 0 for none (Documentation/admin-guide/cgroup-v2.rst). Pure.
 *     max:  memory.max, pids.max: a number or "max"
 *     cpu:  cpu.max: "QUOTA PERIOD", in percent of one core, rounded up
 *     io:   io.max: the least that any line allows to read or write
 */
uint64_t cgroup_parse_max(const char *text);
uint32_t cgroup_parse_cpu(const char *text);
uint64_t cgroup_parse_io(const char *text);
