/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/isolation.h"

#include <assert.h>
#include <string.h>

/* Ranks order resistance to kernel escape alone; the gaps are for tiers between. They never leave this file. */
static const struct {
        const char *name;
        int rank;
} tiers[] = {
        [TIER_UNKNOWN] = {"unknown", 0},
        [TIER_CONTAINER] = {"container", 10},
        [TIER_GVISOR] = {"gvisor", 20},
        [TIER_MICROVM] = {"microvm", 30},
};
static_assert(sizeof(tiers) / sizeof(*tiers) == TIER_MAX_, "a tier has no row");

static const struct {
        const char *name;
        enum isolation_tier needed;
        bool may_be_container; /* where the operator sets allow_container_standard */
} classes[] = {
        [CLASS_STANDARD] = {"standard", TIER_GVISOR, true},
        [CLASS_TRUSTED] = {"trusted", TIER_CONTAINER, true},
        [CLASS_UNTRUSTED] = {"untrusted", TIER_GVISOR, false},
        [CLASS_HOSTILE] = {"hostile", TIER_MICROVM, false},
        [CLASS_WASM] = {"wasm", TIER_GVISOR, true},
        [CLASS_DEVCONTAINER] = {"devcontainer", TIER_GVISOR, true},
};
static_assert(sizeof(classes) / sizeof(*classes) == CLASS_MAX_, "a class has no row");

static const struct {
        const char *name;
        enum isolation_tier declared;
} backends[] = {
        [BACKEND_FIRECRACKER] = {"firecracker", TIER_MICROVM},
        [BACKEND_CLOUD_HYPERVISOR] = {"cloud-hypervisor", TIER_MICROVM},
        [BACKEND_QEMU] = {"qemu", TIER_MICROVM},
        [BACKEND_GVISOR] = {"gvisor", TIER_GVISOR},
        [BACKEND_RUNC] = {"runc", TIER_CONTAINER},
        [BACKEND_OTHER] = {"other", TIER_UNKNOWN},
};
static_assert(sizeof(backends) / sizeof(*backends) == BACKEND_MAX_, "a backend has no row");

/* Neither is a question of how strong the wall is, but of whether the egress can be made to pass the broker. */
static const char kata_why[] =
        "Kata cannot be used in broker mode, which works with backends whose vsock the host can reach: "
        "its runtime keeps the VM's vsock to itself and gives the pod a network card, so that its egress would not pass "
        "the broker; run firecracker, cloud-hypervisor or qemu without a card instead";
static const char kubernetes_why[] =
        "Kubernetes cannot be used in broker mode, which works with backends whose vsock the host can reach: "
        "a pod has no vsock and gets a network card from the cluster, so that its egress would not pass the broker; "
        "use the cluster's network policies there, or run firecracker, cloud-hypervisor or qemu without a card instead";

static const struct {
        const char *name;
        const char *why;
} refused[] = {
        {"kata", kata_why},
        {"kata-containers", kata_why},
        {"kubernetes", kubernetes_why},
        {"k8s", kubernetes_why},
};

const char *backend_refusal(const char *word)
{
        for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
                if (strcmp(refused[i].name, word) == 0)
                        return refused[i].why;
        return NULL;
}

const char *isolation_tier_name(enum isolation_tier tier)
{
        assert(tier < TIER_MAX_);
        return tiers[tier].name;
}

const char *isolation_class_name(enum isolation_class class)
{
        assert(class < CLASS_MAX_);
        return classes[class].name;
}

const char *backend_name(enum backend backend)
{
        assert(backend < BACKEND_MAX_);
        return backends[backend].name;
}

enum isolation_tier backend_declares(enum backend backend)
{
        assert(backend < BACKEND_MAX_);
        return backends[backend].declared;
}

bool isolation_satisfies(enum isolation_tier tier, enum isolation_tier minimum)
{
        assert(tier < TIER_MAX_ && minimum < TIER_MAX_);
        /* A row that somebody forgot to rank counts as unknown: it satisfies nothing, and nothing satisfies it. */
        return tiers[tier].rank > tiers[TIER_UNKNOWN].rank && tiers[minimum].rank > tiers[TIER_UNKNOWN].rank &&
               tiers[tier].rank >= tiers[minimum].rank;
}

enum isolation_tier isolation_needed(const struct policy *policy, bool allow_container_standard)
{
        enum isolation_tier needed;

        assert(policy->isolation < CLASS_MAX_);
        needed = classes[policy->isolation].needed;
        if (allow_container_standard && classes[policy->isolation].may_be_container)
                needed = TIER_CONTAINER;
        if (policy->require_isolation < 0)
                return needed;
        /* A policy can ask for more than its class does, and never for less. */
        return isolation_satisfies((enum isolation_tier)policy->require_isolation, needed)
                       ? (enum isolation_tier)policy->require_isolation
                       : needed;
}
