/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/settings.h"

#include <string.h>

#include "broker/config.h"
#include "broker/policy.h"
#include "tests/support/suite.h"

/* A configuration that adds one range to the floor. */
struct world {
        struct prefix range;
        struct config config;
        struct hostname resolver;
        struct setup setup;
};

static struct setup *with_floor(struct world *w, const char *range)
{
        *w = (struct world){.config = {.floor_deny = &w->range, .floor_deny_n = 1}};
        w->setup = (struct setup){.config = &w->config, .resolvers = &w->resolver, .resolvers_n = 1};
        CU_ASSERT_EQUAL(prefix_parse(range, strlen(range), &w->range), 0);
        CU_ASSERT_EQUAL(hostname_parse("5.5.5.53", 8, &w->resolver), 0);
        return &w->setup;
}

static bool denies(const struct worker_settings *s, const char *address)
{
        struct hostname host;
        const char *floor;

        CU_ASSERT_EQUAL(hostname_parse(address, strlen(address), &host), 0);
        return policy_decide_addresses(&s->floor, &host, 1, &floor) == REASON_FLOOR_ADDRESS;
}

/* Between two configurations neither opens what the other closes. */
static void test_floor_of_both(void)
{
        struct world before, after;
        struct worker_settings *s;
        struct setup *old = with_floor(&before, "5.5.1.0/24"), *new = with_floor(&after, "5.5.2.0/24");

        CU_ASSERT_EQUAL_FATAL(settings_make(new, old, &s), 0);
        CU_ASSERT(denies(s, "5.5.1.1") && denies(s, "5.5.2.1") && !denies(s, "5.5.3.1"));
        worker_settings_unref(s);
        CU_ASSERT_EQUAL_FATAL(settings_make(new, NULL, &s), 0);
        CU_ASSERT(!denies(s, "5.5.1.1") && denies(s, "5.5.2.1"));
        CU_ASSERT(denies(s, "10.0.0.1")); /* compiled in */
        worker_settings_unref(s);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"between two configurations the floor is that of both", test_floor_of_both},
                CU_TEST_INFO_NULL,
        };

        return suite_run("settings", tests);
}
