/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/wall.h"

#include <assert.h>
#include <stdio.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

#define VMM (LAYER_BIT(LAYER_PROGRAM) | LAYER_BIT(LAYER_KVM))

static const layer_set rests_on[] = {
        [BACKEND_FIRECRACKER] = VMM,
        [BACKEND_CLOUD_HYPERVISOR] = VMM,
        [BACKEND_QEMU] = VMM, /* so that software emulation, which is no wall, proves nothing */
        [BACKEND_GVISOR] = LAYER_BIT(LAYER_PROGRAM) | LAYER_BIT(LAYER_SECCOMP),
        [BACKEND_RUNC] = LAYER_BIT(LAYER_MNTNS) | LAYER_BIT(LAYER_CHROOT) | LAYER_BIT(LAYER_PIDNS),
        [BACKEND_OTHER] = 0,
};
static_assert(COUNT(rests_on) == BACKEND_MAX_, "a backend has no row");

/* How to come by a layer that is demanded. */
static const char *const remedies[LAYER_MAX_] = {
        [LAYER_UID] = "run the VMM as an unprivileged user of its own",
        [LAYER_SECCOMP] = "start the VMM with a seccomp filter on every thread",
        [LAYER_NETNS] = "start the VMM in a network namespace of its own",
        [LAYER_CHROOT] = "start the VMM in a root of its own, as a jailer does",
        [LAYER_CGROUP] = "put the VMM into a cgroup with ceilings on cpu, memory, pids and io",
};

layer_set wall_rests_on(enum backend backend)
{
        assert(backend < BACKEND_MAX_);
        return rests_on[backend];
}

/* -1: none. */
static int first_of(layer_set set)
{
        for (int i = 0; i < LAYER_MAX_; i++)
                if (set & LAYER_BIT(i))
                        return i;
        return -1;
}

/* Why the evidence does not prove the tier that the backend declares; false if it does. */
static bool find_doubt(const struct wall_question *q, char *ret_text, size_t room)
{
        int layer = first_of(rests_on[q->backend] & ~layers_in(q->layers, LAYER_PRESENT));

        if (backend_declares(q->backend) == TIER_UNKNOWN) {
                (void)snprintf(ret_text, room, "a backend of this kind declares nothing");
                return true;
        }
        if (layer >= 0)
                (void)snprintf(ret_text, room, "%s is %s: %s", layer_name((enum layer)layer),
                        layer_state_name(q->layers->of[layer].state), q->layers->of[layer].fact);
        return layer >= 0;
}

/* The backends whose declaration is strong enough: "firecracker, cloud-hypervisor, qemu". */
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

/* Sets the tier, and what follows from it alone. */
static void decide_tier(const struct wall_question *q, struct wall *w)
{
        enum isolation_tier needed = isolation_needed(q->policy, q->rules->allow_container_standard);
        const char *class = isolation_class_name(q->policy->isolation), *backend = backend_name(q->backend);
        char doubt[sizeof(q->layers->of->fact) + 64] = "", satisfying[128];
        bool trust = q->rules->trust_declared;

        w->verified = !find_doubt(q, doubt, sizeof(doubt));
        w->tier = w->verified || trust ? backend_declares(q->backend) : TIER_UNKNOWN;
        list_satisfying(needed, satisfying, sizeof(satisfying));
        if (isolation_satisfies(w->tier, needed)) {
                w->reason = REASON_ALLOWED;
                (void)snprintf(w->message, sizeof(w->message),
                        "backend %s, tier %s, %s%s%s; the policy (%s) asks for %s", backend,
                        isolation_tier_name(w->tier), w->verified ? "verified" : "declared, unverified",
                        w->verified ? "" : ": ", doubt, class, isolation_tier_name(needed));
        } else if (w->tier == TIER_UNKNOWN) {
                w->reason = REASON_ISOLATION_UNKNOWN;
                (void)snprintf(w->message, sizeof(w->message),
                        "backend %s is of tier unknown (%s); the policy (%s) asks for %s: give the pid of a process of %s that proves it%s",
                        backend, doubt, class, isolation_tier_name(needed), satisfying,
                        trust ? ""
                              : ", or set `isolation: {trust_declared: true}` in the broker's configuration to believe it without proof");
        } else {
                w->reason = REASON_ISOLATION_TOO_WEAK;
                (void)snprintf(w->message, sizeof(w->message),
                        "backend %s is of tier %s; the policy (%s) asks for %s: run it in %s, or use a policy that asks for less",
                        backend, isolation_tier_name(w->tier), class, isolation_tier_name(needed), satisfying);
        }
}

void wall_decide(const struct wall_question *q, struct wall *ret)
{
        layer_set missing = q->rules->required & ~layers_in(q->layers, LAYER_PRESENT);
        /* One that is seen to be absent says more than one that cannot be read. */
        layer_set absent = missing & layers_in(q->layers, LAYER_ABSENT);
        int layer = first_of(absent ? absent : missing);
        char required[128];

        decide_tier(q, ret);
        if (ret->reason != REASON_ALLOWED || layer < 0)
                return;
        layer_set_print(q->rules->required, required, sizeof(required));
        ret->reason = absent ? REASON_ISOLATION_TOO_WEAK : REASON_ISOLATION_UNKNOWN;
        (void)snprintf(ret->message, sizeof(ret->message),
                "%s is %s: %s; isolation.require_layers asks for %s: %s, or ask for fewer layers",
                layer_name((enum layer)layer), layer_state_name(q->layers->of[layer].state), q->layers->of[layer].fact,
                required, remedies[layer] ? remedies[layer] : "give the pid of a process that has it");
}

void wall_decide_again(const struct wall_question *q, const struct layers *before, bool was_verified, struct wall *ret)
{
        layer_set gone = layers_in(before, LAYER_PRESENT) & layers_in(q->layers, LAYER_ABSENT);
        int layer = first_of(gone);
        char doubt[sizeof(q->layers->of->fact) + 64];

        wall_decide(q, ret);
        if (ret->reason != REASON_ALLOWED)
                return;
        if (layer >= 0) {
                ret->reason = REASON_ISOLATION_TOO_WEAK;
                (void)snprintf(ret->message, sizeof(ret->message), "%s has vanished: it was \"%s\", it is \"%s\"",
                        layer_name((enum layer)layer), before->of[layer].fact, q->layers->of[layer].fact);
        } else if (was_verified && find_doubt(q, doubt, sizeof(doubt))) {
                ret->reason = REASON_ISOLATION_UNKNOWN;
                (void)snprintf(ret->message, sizeof(ret->message), "tier %s was verified and is no longer (%s)",
                        isolation_tier_name(ret->tier), doubt);
        }
}
