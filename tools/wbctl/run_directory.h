/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of one run, below one directory that the keeper removes. The VM's part belongs to the user that QEMU and
 * wbvsock run as; the broker finds out from it whom to serve.
 */

#include <stdbool.h>
#include <sys/types.h>

#define RUN_PATH_BYTES 80u /* so that the longest socket path, "..._1025", fits into sun_path (unix(7)) */

struct run_directory {
        char name[32]; /* of the VM at the broker: "run-4f3a9c01" */
        char cid[11];  /* of the guest, decimal; no two VMs need differ, for none shares a wbvsock */
        char path[RUN_PATH_BYTES];
        char vm[RUN_PATH_BYTES];     /* the VM's part */
        char vsock[RUN_PATH_BYTES];  /* wbvsock's base path for the host's side */
        char device[RUN_PATH_BYTES]; /* where wbvsock listens for QEMU */
        char console[RUN_PATH_BYTES];
        char machine_log[RUN_PATH_BYTES];
        char vsock_log[RUN_PATH_BYTES];

        char broker[RUN_PATH_BYTES]; /* of the run's own broker */
        char broker_config[RUN_PATH_BYTES];
        char broker_log[RUN_PATH_BYTES];
        char control[RUN_PATH_BYTES];
        char no_network[RUN_PATH_BYTES]; /* the policy of a run without --policy */

        uid_t uid; /* 0: nobody else than us, we are not root */
        gid_t gid;
};

/* 0 or a negative errno with the reason on stderr. After 0 somebody must remove the directory. */
int run_directory_make(struct run_directory *ret);

/* For a run that ends before its keeper has started. */
void run_directory_remove(const struct run_directory *d);

/* The configuration of the run's own broker. trust: a declared tier is believed. 0 or a negative errno. */
int run_directory_write_broker(const struct run_directory *d, bool trust);

/* Shows the last lines of what the VM and its programs wrote, for the message of a boot that failed. */
void run_directory_show_logs(const struct run_directory *d);
