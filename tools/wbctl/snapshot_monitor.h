/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a snapshot wants of QEMU: a VM's state into a file or out of one, without its memory, which stays where it is.
 * Each step waits, as run_vm_wait() does, and answers as run_vm.h says: 0, an exit status with the reason on stderr, or
 * RUN_VM_E_SIGNAL.
 */

#include "tools/wbctl/qmp.h"
#include "tools/wbctl/run_vm.h"
#include "tools/wbctl/snapshot_machine.h"

struct snapshot_monitor {
        struct run_vm *vm;
        struct qmp *qmp; /* NULL: not there yet */
        bool unplugged;  /* QEMU has said that the vsock device is gone */
};

/* A connection: one end is kept here, QEMU inherits the other; the caller closes it. 0 or EXIT_FAILED. */
int snapshot_monitor_open(struct snapshot_monitor *m, struct run_vm *vm, int *ret_fd);
void snapshot_monitor_close(struct snapshot_monitor *m);

/* QEMU is there: its version. */
int snapshot_monitor_greet(struct snapshot_monitor *m, char ret_version[SNAPSHOT_MACHINE_TEXT_BYTES]);

/* Unplugs the vsock device, stops the VM, writes its state into fd. */
int snapshot_monitor_save(struct snapshot_monitor *m, int fd);

/* Reads the state from fd; the VM stands still and has no vsock device. */
int snapshot_monitor_load(struct snapshot_monitor *m, int fd);

/* Plugs the device in and lets the VM run. */
int snapshot_monitor_continue(struct snapshot_monitor *m);
