/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a VM's life (run_vm.h) asks of the broker, over its control socket. */

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "proto/base/options.h"

/* Whether a broker listens there. */
bool run_broker_listens(const char *control);

struct run_broker_vm {
        const char *name;
        const char *vsock_path; /* hybrid */
        pid_t pid;              /* QEMU's, for the evidence */
        const char *policy;     /* the file */
};

/* Each: 0, or an exit status with the reason on stderr. */
int run_broker_add(const char *control, const struct run_broker_vm *vm);
int run_broker_activate(const char *control, const char *name, json_t *secrets);
int run_broker_quiesce(const char *control, const char *name);

/* The files of --secret NAME=FILE, for an activation; json_decref() ends them. */
int run_broker_read_secrets(const struct option_strings *given, json_t **ret);

/* Never says anything: the VM may be gone already. */
void run_broker_remove(const char *control, const char *name);
