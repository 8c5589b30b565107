/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The keeper: a process between wbctl and the programs of its VM. It starts them, says how each ends, and when
 * wbctl tells it to, or is gone however it went, it ends them all and removes the run's directory. It is in a session
 * of its own, so that a Ctrl-C at the terminal reaches wbctl alone. Is the keeper itself killed, the kernel kills the
 * programs with it (PR_SET_PDEATHSIG), and wbctl removes the directory.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* In the order of their start; ended in reverse. */
enum keeper_slot {
        KEEPER_BROKER,
        KEEPER_VSOCK,
        KEEPER_MACHINE,
        KEEPER_SLOTS,
};

#define KEEPER_FDS_MAX 4

struct keeper_program {
        char **argv;             /* NULL: this run has no such program */
        const char *log_path;    /* where its stdout and stderr go */
        const char *wait_path;   /* started only when this is there; NULL: at once */
        int fds[KEEPER_FDS_MAX]; /* that it inherits, with the same numbers; fds_n of them */
        size_t fds_n;
        bool confined; /* runs as the plan's uid and gid, in a network namespace without interfaces */
};

struct keeper_plan {
        struct keeper_program programs[KEEPER_SLOTS];
        const char *directory; /* removed at the end, with all that is in it */
        uid_t uid;             /* for the confined programs, if wbctl is root; 0: they stay root */
        gid_t gid;
        gid_t extra_gid; /* one supplementary group, that of /dev/kvm; (gid_t)-1: none */

        /* Called by the keeper before it ends the programs: takes the VM out of a broker that is not this run's. May be
         * NULL. */
        void (*farewell)(const void *userdata);
        const void *userdata;
};

struct keeper;

/*
 * Everything that plan points to is copied by the fork and may be freed afterwards. 0 or a negative errno; in that case
 * too the directory has been removed.
 */
int keeper_start(const struct keeper_plan *plan, struct keeper **ret);

/* Ends the programs, removes the directory, and waits for all of it. NULL is fine. */
void keeper_stop(struct keeper *k);

/* Readable when keeper_update() has something to tell. */
int keeper_fd(const struct keeper *k);

/* Takes what the keeper has said, without waiting. 0, or -EPIPE: it is gone, and with it the programs. */
int keeper_update(struct keeper *k);

/* As of the last update. The pid is 0 until the program has been started. */
pid_t keeper_pid(const struct keeper *k, enum keeper_slot slot);

/* Whether the program has ended, and its wait status (waitpid(2)); a program that could not be started has ended too.
 */
bool keeper_ended(const struct keeper *k, enum keeper_slot slot, int *ret_status);

const char *keeper_slot_name(enum keeper_slot slot);
