/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kernel as fuzz_exec.c gives it to the agent: spawn(), kill(2) and the cgroups of guest/ are replaced. A command
 * is a few descriptors that the fuzzer writes to, reads and closes; nothing is forked, nothing is signalled.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/exec_internal.h"

#define WORLD_COMMANDS 8 /* one more cannot be spawned */

struct command {
        bool there;
        pid_t pid, keeper; /* keeper 0: it is in a cgroup */
        char cgroup[EXEC_ID_BYTES];
        int status_fd, report_fd, stdio[3];
        bool terminal;
        bool leader_ended;
        bool killed;         /* the agent has ended all of it: world_reap() lets it die */
        uint64_t written[2]; /* to stdout and stderr */
        uint64_t read;       /* of stdin */
};

extern struct command world_commands[WORLD_COMMANDS];

void world_start(bool with_cgroups);
struct command *world_command_of(pid_t pid);

/* What stands at an offset of a stream; 0 is stdin. */
uint8_t world_byte(int stream, uint64_t offset);

void world_executed(struct command *c);
void world_keeper_dies(struct command *c); /* not reaped yet; nothing was told that was not */
void world_failed(struct exec_table *t, struct command *c, int stage, int error);
void world_write(struct command *c, int stream, size_t n); /* 1 stdout, 2 stderr */
void world_read(struct command *c, size_t n);              /* checks that it is what was sent */
void world_close(struct command *c, int stream);
void world_leader_ends(struct exec_table *t, struct command *c, int wait_status);
void world_all_gone(struct exec_table *t, struct command *c);
void world_reap(struct exec_table *t); /* those that were killed */
