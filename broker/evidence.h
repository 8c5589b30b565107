/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the host's own /proc says of a VMM's process, and what tier that proves (DESIGN.md, Isolation). The monitor
 * gathers, the broker judges. Plain data: it travels over the socket between them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/isolation.h"

struct evidence {
        bool exists;
        bool readable;            /* its descriptors and its program could be looked at */
        bool kvm_vm;              /* holds the descriptor of a KVM VM */
        bool own_mount_namespace; /* another than the monitor's */
        uint32_t uid;             /* effective */
        char program[256];        /* its file's path, cut */
};

/*
 * Looks at pid. *ret_pidfd pins the process, so that the evidence is of that one and no later one of the same number;
 * -1 where no such process exists (exists is false then, and the answer still 0).
 */
int evidence_gather(int pid, struct evidence *ret, int *ret_pidfd);

/* The tier that the evidence proves for a backend of this kind; TIER_UNKNOWN with why in *ret_why (static). Pure. */
enum isolation_tier evidence_tier(enum backend backend, const struct evidence *evidence, const char **ret_why);
