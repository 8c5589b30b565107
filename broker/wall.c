/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/wall.h"

#include <stdio.h>

/* The tier that may be counted on; *ret_why says why it is unknown. */
static enum isolation_tier find_tier(const struct wall_question *q, bool *ret_verified, const char **ret_why)
{
        enum isolation_tier tier = TIER_UNKNOWN;

        *ret_why = "no pid was given, so nothing is verified";
        *ret_verified = false;
        if (q->has_evidence) {
                tier = evidence_tier(q->backend, &q->evidence, ret_why);
                *ret_verified = tier != TIER_UNKNOWN;
        }
        /* Declared is declared: what the evidence does not prove the operator has taken upon himself. */
        if (tier == TIER_UNKNOWN && q->trust_declared) {
                tier = backend_declares(q->backend);
                if (tier == TIER_UNKNOWN)
                        *ret_why = "a backend of this kind declares nothing";
        }
        return tier;
}

/* The backends whose declaration is strong enough: "firecracker, cloud-hypervisor or qemu". */
static void list_satisfying(enum isolation_tier needed, char *to, size_t room)
{
        const char *between = "";
        size_t n = 0;

        to[0] = '\0';
        for (int b = 0; b < BACKEND_MAX_ && n < room; b++) {
                if (!isolation_satisfies(backend_declares((enum backend)b), needed))
                        continue;
                n += (size_t)snprintf(to + n, room - n, "%s%s", between, backend_name((enum backend)b));
                between = ", ";
        }
}

void wall_decide(const struct wall_question *q, struct wall *ret)
{
        enum isolation_tier needed = isolation_needed(q->policy, q->allow_container_standard);
        struct wall w = {.reason = REASON_ALLOWED};
        char satisfying[128];
        const char *why;

        w.tier = find_tier(q, &w.verified, &why);
        list_satisfying(needed, satisfying, sizeof(satisfying));
        if (isolation_satisfies(w.tier, needed)) {
                (void)snprintf(w.message, sizeof(w.message), "backend %s, tier %s, %s%s; the policy asks for %s",
                        backend_name(q->backend), isolation_tier_name(w.tier),
                        w.verified ? "verified" : "declared, unverified: ", w.verified ? "" : why,
                        isolation_tier_name(needed));
        } else if (w.tier == TIER_UNKNOWN) {
                w.reason = REASON_ISOLATION_UNKNOWN;
                (void)snprintf(w.message, sizeof(w.message),
                        "backend %s is of tier unknown (%s); the policy asks for %s: give the pid of a process of %s that proves it%s",
                        backend_name(q->backend), why, isolation_tier_name(needed), satisfying,
                        q->trust_declared ? ""
                                          : ", or set `isolation: {trust_declared: true}` to believe without proof");
        } else {
                w.reason = REASON_ISOLATION_TOO_WEAK;
                (void)snprintf(w.message, sizeof(w.message),
                        "backend %s is of tier %s; the policy asks for %s: run it in %s, or use a policy that asks for less",
                        backend_name(q->backend), isolation_tier_name(w.tier), isolation_tier_name(needed), satisfying);
        }
        *ret = w;
}
