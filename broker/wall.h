/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The decision at `vm add`: is what stands between this VM and the host as strong as its policy asks (DESIGN.md,
 * Isolation)? Pure. */

#include <stdbool.h>

#include "broker/evidence.h"
#include "broker/isolation.h"
#include "broker/policy.h"
#include "broker/reason.h"

struct wall_question {
        enum backend backend;
        bool has_evidence; /* a pid was given */
        struct evidence evidence;
        bool trust_declared; /* the operator's isolation.trust_declared */
        bool allow_container_standard;
        const struct policy *policy;
};

struct wall {
        enum isolation_tier tier;
        bool verified;      /* by evidence, not by declaration alone */
        enum reason reason; /* REASON_ALLOWED, REASON_ISOLATION_UNKNOWN, REASON_ISOLATION_TOO_WEAK */
        char message[512];  /* for a person: what was found, what was asked for, what would satisfy */
};

void wall_decide(const struct wall_question *question, struct wall *ret);
