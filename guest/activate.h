/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Activation: one transaction for boot and resume (DESIGN.md, "Life of a VM"). While it runs the gate is closed and
 * workloads are frozen; each step reports its evidence to the host as it ends; the first that fails leaves the gate
 * closed, the workloads frozen, the secrets wiped, and is named.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/control.h"
#include "guest/report.h"
#include "proto/wire/limits.h"

struct agent;

enum activate_step {
        ACTIVATE_FREEZE,
        ACTIVATE_ENTROPY,
        ACTIVATE_CLOCK,
        ACTIVATE_IDENTITY,
        ACTIVATE_SECRETS,
        ACTIVATE_NETWORK,
        ACTIVATE_NOTIFY,
        ACTIVATE_THAW,
        ACTIVATE_GATE,
        ACTIVATE_STEPS,
};

const char *activate_step_name(enum activate_step step);

/* The last activation that was tried, for `wbctl info`, and what makes an older one fail. */
struct activation_record {
        uint64_t generation; /* a new one must be greater */
        uint8_t nonce[WB_NONCE_BYTES];
        bool nonce_set;
        size_t steps_n; /* that have run */
        struct report steps[ACTIVATE_STEPS];
};

/* Called by control.c for the opening message; the activation takes the conversation over. */
void activate_open(struct agent *agent, struct control *c, const Wb__Activate *m);
void activate_quiesce(struct agent *agent, struct control *c);

/* Ends the activation that runs, if one does, as failed. */
void activate_abort(struct agent *agent);
