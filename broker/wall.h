/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The decision at `vm add`, and again at each re-check: is what stands between this VM and the host as strong as its
 * policy and the operator ask? Pure.
 */

#include <stdbool.h>

#include "broker/isolation.h"
#include "broker/layer.h"
#include "broker/policy.h"
#include "broker/reason.h"

/* What the operator has set, for all VMs. */
struct wall_rules {
        bool trust_declared; /* a backend's tier is believed where the evidence does not prove it */
        bool allow_container_standard;
        layer_set required;               /* of each VM, whatever its policy */
        struct allowed_program *programs; /* none: any of the backend's kind */
        size_t programs_n;
        uint64_t recheck_s;
};

struct wall_question {
        enum backend backend;
        const struct layers *layers; /* all unreadable where no pid was given */
        const struct wall_rules *rules;
        const struct policy *policy;
};

struct wall {
        enum isolation_tier tier;
        bool verified;      /* by evidence, not by declaration alone */
        enum reason reason; /* REASON_ALLOWED, REASON_ISOLATION_UNKNOWN, REASON_ISOLATION_TOO_WEAK */
        char message[1024]; /* for a person: what was found, what was asked for, what would satisfy */
};

void wall_decide(const struct wall_question *question, struct wall *ret);

/*
 * At a re-check: as wall_decide(), and no layer that stood before may be gone, nor may a tier that was verified rest on
 * a declaration from now on. A layer that can only not be read any more counts where it was demanded or the tier rests
 * on it.
 */
void wall_decide_again(
        const struct wall_question *question, const struct layers *before, bool was_verified, struct wall *ret);

/* The layers that this kind's tier rests on: without one of them it is not proven. */
layer_set wall_rests_on(enum backend backend);
