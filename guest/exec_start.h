/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the two halves of starting a command share: exec_start.c (what it is, its streams, its process) and
 * exec_confine.c (its secrets, and what bounds it). Each take_ looks at a part of the request: 0, START_E_REFUSED, or a
 * negative errno. */

#include <stddef.h>

#include "guest/environment.h"
#include "guest/exec_internal.h"
#include "guest/seccomp_profile.h"
#include "guest/secret_mount.h"
#include "guest/spawn.h"
#include "proto/wire/limits.h"

/* The reason has been put down in the request: nothing is started. */
#define START_E_REFUSED 1

/* A request on its way to a process; whatever happens, start_done() frees it all. */
struct start {
        struct exec_table *table;
        const Wb__ExecStart *m;
        const struct texts *argv_texts, *env_texts; /* instead of m's */
        struct exec *exec;
        const char *reason;
        char detail[512];

        struct identity who;
        char **argv;
        struct environment env;
        char *cwd;
        struct spawn_rlimit rlimits[RLIM_NLIMITS + 1];
        size_t rlimits_n;
        int secret_fds[WB_SECRETS_MAX]; /* sealed; handed down as they are */
        size_t secrets_n;
        struct secret_file files[WB_SECRETS_MAX]; /* values of the store: nothing of it goes before they are copied */
        size_t files_n;
        int secrets_fd; /* of their mount */
        struct seccomp_program *profile;
        struct sock_filter *custom_filter;
        int cgroup_fd;
        int child[3];          /* the command's ends */
        int out[EXEC_STREAMS]; /* ours */
        int in;
        int report; /* the keeper's end */
        int status; /* the child's end */
        struct spawn spec;
};

/* Puts the reason down; answers START_E_REFUSED. */
int start_refuse(struct start *s, const char *reason, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* exec_confine.c */
int start_take_secrets(struct start *s);
int start_take_rlimits(struct start *s);
int start_take_caps(struct start *s);
int start_take_seccomp(struct start *s); /* after the user and the capabilities */
int start_take_cgroup(struct start *s);  /* after the exec is there */
