/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The steps of an activation and its state, between activate.c (the transaction) and activate_steps.c (what they do).
 */

#include <stdbool.h>
#include <stdint.h>

#include "guest/clock_talk.h"
#include "guest/hooks.h"
#include "guest/identity.h"
#include "guest/network.h"
#include "guest/report.h"
#include "guest/secret.h"
#include "proto/wire/limits.h"

struct agent;
struct control;

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
        bool opened;       /* the gate has been open: there may be workloads */
        size_t steps_n;    /* that have run */
        uint64_t ended_ns; /* CLOCK_MONOTONIC; 0: none has */
        struct report steps[ACTIVATE_STEPS];
};

/* What of the message outlives it, and the state of the step that waits. */
struct activation {
        struct agent *agent;
        struct control *control; /* NULL once the host has gone away */
        struct activation_record *record;
        enum activate_step step;
        uint64_t step_started_ns;
        bool waiting; /* for activation_step_done() */

        uint8_t seed[WB_SEED_BYTES];
        size_t seed_n;
        uint64_t generation;
        char hostname[WB_HOSTNAME_MAX + 1];
        char id[IDENTITY_ID_BYTES];
        bool set_clock;
        bool was_open;                /* when it began */
        struct secret_store *secrets; /* until they are handed to the agent */
        bool has_network;
        struct network_config network;

        struct clock_talk talk;

        struct hooks hooks;
        char **hooks_env;
};

/* Copies what is needed of the message. 0 or a negative errno. */
int activation_take(struct activation *a, const Wb__Activate *m);
void activation_drop(struct activation *a);

/* A step: 0, a negative errno (said in the report), or this: the step goes on and ends with activation_step_done(). */
#define ACTIVATE_E_WAIT 1
int activation_run_step(struct activation *a, struct report *report);
void activation_step_done(struct activation *a, int r);

/* The host's answer to a ClockProbe. */
void activation_clock_sample(struct activation *a, const Wb__ClockSample *m);
