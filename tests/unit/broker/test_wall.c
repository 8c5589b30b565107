/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/wall.h"

#include <string.h>

#include "tests/support/cases.h"

#define ALL (LAYER_BIT(LAYER_MAX_) - 1)

/* Layers of which these are present, those unreadable, and the rest absent. */
static struct layers layers_of(layer_set present, layer_set unreadable)
{
        struct layers layers;

        layers_without_evidence("the fact", &layers);
        for (int i = 0; i < LAYER_MAX_; i++)
                layers.of[i].state = present & LAYER_BIT(i)      ? LAYER_PRESENT
                                     : unreadable & LAYER_BIT(i) ? LAYER_UNREADABLE
                                                                 : LAYER_ABSENT;
        return layers;
}

struct judged {
        enum backend backend;
        enum isolation_class class;
        layer_set present, unreadable;
        struct wall_rules rules;
};

static struct wall decide(const struct judged *j)
{
        const struct policy policy = {.isolation = j->class, .require_isolation = -1};
        struct layers layers = layers_of(j->present, j->unreadable);
        struct wall w;

        wall_decide(&(struct wall_question){j->backend, &layers, &j->rules, &policy}, &w);
        return w;
}

/* Each class behind each backend whose tier is proven. */
static void test_each_class_behind_each_proven_backend(void)
{
        static const struct {
                enum backend backend;
                enum isolation_tier tier;
                enum reason reasons[CLASS_MAX_]; /* by class, without the flag */
        } table[] = {
#define OK   REASON_ALLOWED
#define WEAK REASON_ISOLATION_TOO_WEAK
#define NONE REASON_ISOLATION_UNKNOWN
                /* standard, trusted, untrusted, hostile, wasm, devcontainer */
                {BACKEND_FIRECRACKER, TIER_MICROVM, {OK, OK, OK, OK, OK, OK}},
                {BACKEND_CLOUD_HYPERVISOR, TIER_MICROVM, {OK, OK, OK, OK, OK, OK}},
                {BACKEND_QEMU, TIER_MICROVM, {OK, OK, OK, OK, OK, OK}},
                {BACKEND_GVISOR, TIER_GVISOR, {OK, OK, OK, WEAK, OK, OK}},
                {BACKEND_RUNC, TIER_CONTAINER, {WEAK, OK, WEAK, WEAK, WEAK, WEAK}},
                {BACKEND_OTHER, TIER_UNKNOWN, {NONE, NONE, NONE, NONE, NONE, NONE}},
        };

        CU_ASSERT_EQUAL(sizeof(table) / sizeof(*table), BACKEND_MAX_);
        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
                for (int class = 0; class < CLASS_MAX_; class ++) {
                        struct judged j = {table[i].backend, (enum isolation_class) class, ALL, 0, {0}};
                        struct wall w = decide(&j);
                        bool bare = table[i].backend == BACKEND_RUNC && w.reason == WEAK;
                        bool helped = class == CLASS_STANDARD || class == CLASS_WASM || class == CLASS_DEVCONTAINER;

                        CU_ASSERT_EQUAL(w.tier, table[i].tier);
                        CU_ASSERT_EQUAL(w.verified, table[i].tier != TIER_UNKNOWN);
                        CU_ASSERT_EQUAL(w.reason, table[i].reasons[class]);
                        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, isolation_class_name((enum isolation_class) class)));
                        /* The operator's flag lets these three onto a bare container, and changes nothing else. */
                        j.rules.allow_container_standard = true;
                        CU_ASSERT_EQUAL(decide(&j).reason, bare && helped ? OK : table[i].reasons[class]);
                }
}

static void test_without_what_it_rests_on_a_tier_is_unknown(void)
{
        for (int b = 0; b < BACKEND_MAX_; b++)
                for (int i = 0; i < LAYER_MAX_; i++) {
                        bool rests = wall_rests_on((enum backend)b) & LAYER_BIT(i);
                        struct wall absent =
                                decide(&(struct judged){(enum backend)b, CLASS_TRUSTED, ALL & ~LAYER_BIT(i), 0, {0}});
                        struct wall unreadable = decide(&(struct judged){
                                (enum backend)b, CLASS_TRUSTED, ALL & ~LAYER_BIT(i), LAYER_BIT(i), {0}});

                        if (b == BACKEND_OTHER)
                                continue;
                        CU_ASSERT_EQUAL(absent.reason, rests ? NONE : OK);
                        CU_ASSERT_EQUAL(unreadable.reason, rests ? NONE : OK);
                        CU_ASSERT_EQUAL(absent.tier == TIER_UNKNOWN, rests);
                        if (rests) {
                                CU_ASSERT_PTR_NOT_NULL(strstr(absent.message, layer_name((enum layer)i)));
                                CU_ASSERT_PTR_NOT_NULL(strstr(absent.message, "absent: the fact"));
                                CU_ASSERT_PTR_NOT_NULL(strstr(unreadable.message, "unreadable: the fact"));
                        }
                }
        CU_ASSERT_TRUE(wall_rests_on(BACKEND_QEMU) & LAYER_BIT(LAYER_KVM));
}

static void test_without_a_pid_nothing_is_verified(void)
{
        struct wall w = decide(&(struct judged){BACKEND_FIRECRACKER, CLASS_TRUSTED, 0, ALL, {0}});

        CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_UNKNOWN);
        CU_ASSERT_FALSE(w.verified);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "trust_declared"));
}

static void test_declared_is_believed_where_the_operator_says_so(void)
{
        struct judged j = {BACKEND_FIRECRACKER, CLASS_HOSTILE, 0, ALL, {.trust_declared = true}};
        struct wall w = decide(&j);

        CU_ASSERT_EQUAL(w.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(w.tier, TIER_MICROVM);
        CU_ASSERT_FALSE(w.verified);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "unverified"));
        j.backend = BACKEND_OTHER;
        j.class = CLASS_TRUSTED;
        CU_ASSERT_EQUAL(decide(&j).reason, REASON_ISOLATION_UNKNOWN);
        CU_ASSERT_PTR_NOT_NULL(strstr(decide(&j).message, "declares nothing"));
}

static void test_too_weak_says_what_would_do(void)
{
        struct wall w = decide(&(struct judged){BACKEND_GVISOR, CLASS_HOSTILE, ALL, 0, {0}});

        CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_TOO_WEAK);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "of tier gvisor"));
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "asks for microvm"));
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "firecracker, cloud-hypervisor, qemu"));
}

static void test_a_demanded_layer_that_is_missing_refuses(void)
{
        static const enum layer demanded[] = {LAYER_UID, LAYER_SECCOMP, LAYER_NETNS, LAYER_CHROOT, LAYER_CGROUP};

        for (size_t i = 0; i < sizeof(demanded) / sizeof(*demanded); i++) {
                layer_set bit = LAYER_BIT(demanded[i]);
                struct judged j = {BACKEND_QEMU, CLASS_TRUSTED, ALL, 0, {.required = bit | LAYER_BIT(LAYER_UID)}};
                struct wall w;

                CU_ASSERT_EQUAL(decide(&j).reason, REASON_ALLOWED);
                j.present = ALL & ~bit;
                w = decide(&j);
                CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_TOO_WEAK);
                CU_ASSERT_PTR_NOT_NULL(strstr(w.message, layer_name(demanded[i])));
                CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "require_layers"));
                j.unreadable = bit;
                CU_ASSERT_EQUAL(decide(&j).reason, REASON_ISOLATION_UNKNOWN);
                /* Trust is of the tier; a layer is demanded to be seen. */
                j.rules.trust_declared = true;
                CU_ASSERT_EQUAL(decide(&j).reason, REASON_ISOLATION_UNKNOWN);
        }
}

static struct wall decide_again(const struct judged *j, layer_set before, bool was_verified)
{
        const struct policy policy = {.isolation = j->class, .require_isolation = -1};
        struct layers now = layers_of(j->present, j->unreadable), then = layers_of(before, 0);
        struct wall w;

        wall_decide_again(&(struct wall_question){j->backend, &now, &j->rules, &policy}, &then, was_verified, &w);
        return w;
}

static void test_a_layer_that_vanished_ends_it(void)
{
        struct judged j = {BACKEND_QEMU, CLASS_HOSTILE, ALL, 0, {0}};
        struct wall w;

        CU_ASSERT_EQUAL(decide_again(&j, ALL, true).reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(decide_again(&j, ALL & ~LAYER_BIT(LAYER_UID), true).reason, REASON_ALLOWED);
        j.present = ALL & ~LAYER_BIT(LAYER_CGROUP);
        w = decide_again(&j, ALL, true);
        CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_TOO_WEAK);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "cgroup has vanished"));
        /* It was not there before: nothing changed. */
        CU_ASSERT_EQUAL(decide_again(&j, ALL & ~LAYER_BIT(LAYER_CGROUP), true).reason, REASON_ALLOWED);
        /* It may stand still; nobody demanded to see it. */
        j.unreadable = LAYER_BIT(LAYER_CGROUP);
        CU_ASSERT_EQUAL(decide_again(&j, ALL, true).reason, REASON_ALLOWED);
        j.rules.required = LAYER_BIT(LAYER_CGROUP);
        CU_ASSERT_EQUAL(decide_again(&j, ALL, true).reason, REASON_ISOLATION_UNKNOWN);
}

static void test_what_was_verified_is_not_believed_later(void)
{
        struct judged j = {BACKEND_QEMU, CLASS_HOSTILE, ALL & ~LAYER_BIT(LAYER_KVM), LAYER_BIT(LAYER_KVM),
                {.trust_declared = true}};

        CU_ASSERT_EQUAL(decide_again(&j, ALL, false).reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(decide_again(&j, ALL, true).reason, REASON_ISOLATION_UNKNOWN);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"each class behind each proven backend", test_each_class_behind_each_proven_backend},
                {"without what it rests on a tier is unknown", test_without_what_it_rests_on_a_tier_is_unknown},
                {"without a pid nothing is verified", test_without_a_pid_nothing_is_verified},
                {"declared is believed where the operator says so",
                        test_declared_is_believed_where_the_operator_says_so},
                {"too weak says what would do", test_too_weak_says_what_would_do},
                {"a demanded layer that is missing refuses", test_a_demanded_layer_that_is_missing_refuses},
                {"a layer that vanished ends it", test_a_layer_that_vanished_ends_it},
                {"what was verified is not believed later", test_what_was_verified_is_not_believed_later},
                CU_TEST_INFO_NULL,
        };

        return cases_run("wall", tests);
}
