/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/isolation.h"

#include <string.h>

#include "tests/support/cases.h"

/* In the order of resistance to kernel escape; written out again, since it is the order that the test is about. */
static const enum isolation_tier order[] = {TIER_CONTAINER, TIER_GVISOR, TIER_MICROVM};
#define ORDER_N (sizeof(order) / sizeof(*order))

static void test_tiers_are_ordered(void)
{
        CU_ASSERT_EQUAL(ORDER_N, TIER_MAX_ - 1);
        for (size_t i = 0; i < ORDER_N; i++)
                for (size_t j = 0; j < ORDER_N; j++)
                        CU_ASSERT_EQUAL(isolation_satisfies(order[i], order[j]), i >= j);
}

static void test_unknown_satisfies_nothing(void)
{
        for (int tier = 0; tier < TIER_MAX_; tier++) {
                CU_ASSERT_FALSE(isolation_satisfies(TIER_UNKNOWN, (enum isolation_tier)tier));
                CU_ASSERT_FALSE(isolation_satisfies((enum isolation_tier)tier, TIER_UNKNOWN));
        }
}

/* A member that was added without its name, its rank or its row falls out here. */
static void test_every_member_has_its_row(void)
{
        for (int i = 0; i < TIER_MAX_; i++) {
                enum isolation_tier tier = (enum isolation_tier)i;

                CU_ASSERT_PTR_NOT_NULL(isolation_tier_name(tier));
                CU_ASSERT_EQUAL(isolation_satisfies(tier, tier), tier != TIER_UNKNOWN);
                for (int j = 0; j < i && j != TIER_UNKNOWN; j++)
                        CU_ASSERT_NOT_EQUAL(isolation_satisfies(tier, (enum isolation_tier)j),
                                isolation_satisfies((enum isolation_tier)j, tier));
        }
        for (int i = 0; i < CLASS_MAX_; i++) {
                const struct policy policy = {.isolation = (enum isolation_class)i, .require_isolation = -1};

                CU_ASSERT_PTR_NOT_NULL(isolation_class_name((enum isolation_class)i));
                CU_ASSERT_TRUE(isolation_satisfies(TIER_MICROVM, isolation_needed(&policy, false)));
                CU_ASSERT_TRUE(isolation_satisfies(TIER_MICROVM, isolation_needed(&policy, true)));
        }
        for (int i = 0; i < BACKEND_MAX_; i++)
                CU_ASSERT_PTR_NOT_NULL(backend_name((enum backend)i));
}

/* Every class behind every tier, with and without the operator's flag. */
static void test_each_class_behind_each_tier(void)
{
        static const struct {
                enum isolation_class class;
                bool passes[TIER_MAX_], passes_with_flag[TIER_MAX_]; /* unknown, container, gvisor, microvm */
        } table[] = {
                {CLASS_TRUSTED, {0, 1, 1, 1}, {0, 1, 1, 1}},
                {CLASS_STANDARD, {0, 0, 1, 1}, {0, 1, 1, 1}},
                {CLASS_WASM, {0, 0, 1, 1}, {0, 1, 1, 1}},
                {CLASS_DEVCONTAINER, {0, 0, 1, 1}, {0, 1, 1, 1}},
                {CLASS_UNTRUSTED, {0, 0, 1, 1}, {0, 0, 1, 1}},
                {CLASS_HOSTILE, {0, 0, 0, 1}, {0, 0, 0, 1}},
        };

        CU_ASSERT_EQUAL(sizeof(table) / sizeof(*table), CLASS_MAX_);
        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
                for (int t = 0; t < TIER_MAX_; t++) {
                        const struct policy policy = {.isolation = table[i].class, .require_isolation = -1};
                        enum isolation_tier tier = (enum isolation_tier)t;

                        CU_ASSERT_EQUAL(
                                isolation_satisfies(tier, isolation_needed(&policy, false)), table[i].passes[t]);
                        CU_ASSERT_EQUAL(isolation_satisfies(tier, isolation_needed(&policy, true)),
                                table[i].passes_with_flag[t]);
                }
}

static void test_backends_that_no_broker_serves(void)
{
        static const char *const words[] = {"kata", "kata-containers", "kubernetes", "k8s"};

        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
                CU_ASSERT_PTR_NOT_NULL_FATAL(backend_refusal(words[i]));
                CU_ASSERT_PTR_NOT_NULL(strstr(backend_refusal(words[i]), words[i][1] == 'a' ? "Kata" : "Kubernetes"));
                CU_ASSERT_PTR_NOT_NULL(strstr(backend_refusal(words[i]), "vsock"));
        }
        for (int i = 0; i < BACKEND_MAX_; i++)
                CU_ASSERT_PTR_NULL(backend_refusal(backend_name((enum backend)i)));
        CU_ASSERT_PTR_NULL(backend_refusal("nonsense"));
}

static void test_names_are_those_of_the_contract(void)
{
        static const char *const tiers[] = {"unknown", "container", "gvisor", "microvm"};
        static const char *const backends[] = {"firecracker", "cloud-hypervisor", "qemu", "gvisor", "runc", "other"};

        CU_ASSERT_EQUAL(sizeof(tiers) / sizeof(*tiers), TIER_MAX_);
        CU_ASSERT_EQUAL(sizeof(backends) / sizeof(*backends), BACKEND_MAX_);
        for (int i = 0; i < TIER_MAX_; i++)
                CU_ASSERT_STRING_EQUAL(isolation_tier_name((enum isolation_tier)i), tiers[i]);
        for (int i = 0; i < BACKEND_MAX_; i++)
                CU_ASSERT_STRING_EQUAL(backend_name((enum backend)i), backends[i]);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_FIRECRACKER), TIER_MICROVM);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_CLOUD_HYPERVISOR), TIER_MICROVM);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_QEMU), TIER_MICROVM);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_GVISOR), TIER_GVISOR);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_RUNC), TIER_CONTAINER);
        CU_ASSERT_EQUAL(backend_declares(BACKEND_OTHER), TIER_UNKNOWN);
}

static void test_what_each_class_needs(void)
{
        static const struct {
                enum isolation_class class;
                const char *name;
                enum isolation_tier needed, with_flag;
        } table[] = {
                {CLASS_STANDARD, "standard", TIER_GVISOR, TIER_CONTAINER},
                {CLASS_TRUSTED, "trusted", TIER_CONTAINER, TIER_CONTAINER},
                {CLASS_UNTRUSTED, "untrusted", TIER_GVISOR, TIER_GVISOR},
                {CLASS_HOSTILE, "hostile", TIER_MICROVM, TIER_MICROVM},
                {CLASS_WASM, "wasm", TIER_GVISOR, TIER_CONTAINER},
                {CLASS_DEVCONTAINER, "devcontainer", TIER_GVISOR, TIER_CONTAINER},
        };

        CU_ASSERT_EQUAL(sizeof(table) / sizeof(*table), CLASS_MAX_);
        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
                struct policy policy = {.isolation = table[i].class, .require_isolation = -1};

                CU_ASSERT_STRING_EQUAL(isolation_class_name(table[i].class), table[i].name);
                CU_ASSERT_EQUAL(isolation_needed(&policy, false), table[i].needed);
                CU_ASSERT_EQUAL(isolation_needed(&policy, true), table[i].with_flag);
        }
}

static void test_a_policy_only_raises_what_its_class_needs(void)
{
        struct policy policy = {.isolation = CLASS_TRUSTED, .require_isolation = TIER_MICROVM};

        CU_ASSERT_EQUAL(isolation_needed(&policy, false), TIER_MICROVM);
        CU_ASSERT_EQUAL(isolation_needed(&policy, true), TIER_MICROVM);
        policy = (struct policy){.isolation = CLASS_HOSTILE, .require_isolation = TIER_CONTAINER};
        CU_ASSERT_EQUAL(isolation_needed(&policy, true), TIER_MICROVM);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"tiers are ordered", test_tiers_are_ordered},
                {"unknown satisfies nothing", test_unknown_satisfies_nothing},
                {"every member has its row", test_every_member_has_its_row},
                {"each class behind each tier", test_each_class_behind_each_tier},
                {"backends that no broker serves", test_backends_that_no_broker_serves},
                {"names are those of the contract", test_names_are_those_of_the_contract},
                {"what each class needs", test_what_each_class_needs},
                {"a policy only raises what its class needs", test_a_policy_only_raises_what_its_class_needs},
                CU_TEST_INFO_NULL,
        };

        return cases_run("isolation", tests);
}
