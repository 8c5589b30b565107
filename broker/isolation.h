/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Isolation tiers and classes. The order of the tiers ranks one property, resistance to kernel escape by a hostile
 * tenant, and nothing else; ranks stay inside the table of isolation.c, and isolation_satisfies() is the only question.
 * Pure.
 */

#include <stdbool.h>

#include "broker/policy.h"

enum isolation_tier {
        TIER_UNKNOWN, /* proves nothing, satisfies nothing; from here up: more resistance to kernel escape */
        TIER_CONTAINER,
        TIER_GVISOR,
        TIER_MICROVM,
        TIER_MAX_,
};

enum backend {
        BACKEND_FIRECRACKER,
        BACKEND_CLOUD_HYPERVISOR,
        BACKEND_QEMU,
        BACKEND_GVISOR,
        BACKEND_RUNC,
        BACKEND_OTHER,
        BACKEND_MAX_,
};

const char *isolation_tier_name(enum isolation_tier tier);
const char *isolation_class_name(enum isolation_class class);
const char *backend_name(enum backend backend);

/* What a backend of this kind declares itself to be; believed only with evidence or where the operator says so. */
enum isolation_tier backend_declares(enum backend backend);

/* Backends that exist and that a broker cannot serve, by their word: why not, for a person; NULL for any other word. */
const char *backend_refusal(const char *word);

/* Is tier at least as resistant to kernel escape by a hostile tenant as minimum? TIER_UNKNOWN satisfies nothing, and
 * nothing satisfies it: it is none that can be asked for. */
bool isolation_satisfies(enum isolation_tier tier, enum isolation_tier minimum);

/* The least tier for a policy: what its class needs, or require_isolation where that is more. */
enum isolation_tier isolation_needed(const struct policy *policy, bool allow_container_standard);
