/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The life of one VM that this process has for itself: its programs, its place at a broker, its activation, a command
 * in it, its end. Whether it boots or comes from a snapshot is the machine's affair (run_machine.h). In order:
 * run_vm_prepare(), run_vm_check_isolation(), run_vm_start(), run_vm_activate(), run_vm_exec(), and in any case
 * run_vm_end().
 */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "proto/base/options.h"
#include "tools/wbctl/run_directory.h"
#include "tools/wbctl/run_keeper.h"
#include "tools/wbctl/run_machine.h"

/*
 * As the command line gave them; they outlive the VM. A command embeds this and puts RUN_VM_SPECS into its table, or
 * RUN_VM_WARM_SPECS where the VM is to keep neither secrets nor a terminal.
 */
struct run_vm_options {
        const char *policy; /* the file; NULL: nothing may be reached */
        struct option_strings env;
        struct option_strings secrets;
        uint64_t timeout_ms; /* of the command; 0: none */
        bool allow_unverified;
        bool terminal;
        const char *socket;
};

/* clang-format off */
#define RUN_VM_WARM_SPECS(type, member)                                                                                \
        {"policy", 0, OPTION_STRING, offsetof(type, member.policy), "FILE",                                            \
                "what the VM may reach; absent: nothing"},                                                             \
        {"env", 0, OPTION_STRINGS, offsetof(type, member.env), "NAME=VALUE", "into the command's environment (repeatable)"},        \
        {"timeout", 0, OPTION_DURATION_MS, offsetof(type, member.timeout_ms), "DURATION",                              \
                "of the command; then it is killed, exit 124"},                                                        \
        {"allow-unverified", 0, OPTION_FLAG, offsetof(type, member.allow_unverified), NULL,                            \
                "also without KVM, where nothing proves the isolation"},                                               \
        {"socket", 0, OPTION_STRING, offsetof(type, member.socket), "PATH",                                            \
                "the broker's control socket (WB_SOCKET); without a broker, one of the VM's own"}

#define RUN_VM_SPECS(type, member)                                                                                     \
        RUN_VM_WARM_SPECS(type, member),                                                                               \
        {"secret", 0, OPTION_STRINGS, offsetof(type, member.secrets), "NAME=FILE",                                     \
                "a secret; the command finds its path in NAME_FILE (repeatable)"},                                                  \
        {"tty", 't', OPTION_FLAG, offsetof(type, member.terminal), NULL, "give the command a terminal"}
/* clang-format on */

void run_vm_options_done(struct run_vm_options *o);

struct run_vm {
        const struct run_vm_options *options;
        struct run_directory files;
        struct keeper *keeper; /* NULL: nothing has been started */
        const char *control;   /* of the broker in use */
        bool own_broker;
        bool has_stdin;
        bool kvm;
        gid_t kvm_gid;
        json_t *secrets;

        sigset_t signals_before;
        int signal_fd;
        int signal;
};

/*
 * Each answers 0, or the exit status that the command ends with, said on stderr; or RUN_VM_E_SIGNAL, which no exit
 * status is: a signal to us, which run_vm_end() makes of it.
 */
#define RUN_VM_E_SIGNAL (-1)

/* The exit status of an error that nobody has said yet; 0 stays 0. */
int run_vm_failed(int error, const char *what);

/* Before anything is started: what was given is read and judged. table is that of the command, for its messages. */
int run_vm_prepare(struct run_vm *vm, const struct run_vm_options *options, const struct option_table *table);

/* Finds out about KVM (vm->kvm); without it only --allow-unverified goes on. */
int run_vm_check_isolation(struct run_vm *vm);

/*
 * Starts broker, device and QEMU, without waiting for them. machine->kvm and its paths are set here; its descriptors
 * are inherited and stay the caller's. From here on signals are ours.
 */
int run_vm_start(struct run_vm *vm, struct machine *machine);

/*
 * Waits for fd (-1: for none) at most timeout_ms (-1: for ever). 0 when it is ready or the time is over; another
 * answer when a signal came, or a program of the VM ended.
 */
int run_vm_wait(struct run_vm *vm, int fd, short events, int timeout_ms);

/* Waits for the programs and the agent, and has the broker activate it. */
int run_vm_activate(struct run_vm *vm);

/* While it runs, signals are the command's. Answers its exit status. */
int run_vm_exec(struct run_vm *vm, char **argv, size_t argv_n);

/* Before a snapshot: workloads frozen, secrets wiped, filesystems synced. */
int run_vm_quiesce(struct run_vm *vm);

/* Ends the VM and all that belongs to it. May be called twice. */
void run_vm_stop(struct run_vm *vm);

/* The same, and what prepare read. Answers r, or dies of the signal that r speaks of. */
int run_vm_end(struct run_vm *vm, int r);
