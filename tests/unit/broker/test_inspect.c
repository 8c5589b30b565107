/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

static struct ca *make_ca(void)
{
        struct ca *ca = NULL;
        char *text;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(ca_make(&text, &n), 0);
        CU_ASSERT_EQUAL_FATAL(ca_load(text, n, &ca), 0);
        free(text);
        return ca;
}

static struct inspect_trust *make_trust(const struct ca *ca)
{
        struct inspect_trust *trust = NULL;

        CU_ASSERT_EQUAL_FATAL(inspect_trust_new(ca_certificate(ca), strlen(ca_certificate(ca)), &trust), 0);
        return trust;
}

static void test_what_is_no_bundle(void)
{
        static const char *const texts[] = {
                "", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"};
        struct inspect_trust *trust = NULL;

        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
                CU_ASSERT_EQUAL_FATAL(inspect_trust_new(texts[i], strlen(texts[i]), &trust), 0);
                CU_ASSERT_EQUAL(inspect_trust_check(trust), -EBADMSG);
                inspect_trust_unref(trust);
        }
}

/* One certificate that cannot be read does not take the others with it. */
static void test_a_bundle_with_a_flaw(void)
{
        struct ca *ca = make_ca();
        struct inspect_trust *trust = NULL;
        char text[8192];

        (void)snprintf(text, sizeof(text),
                "# a comment\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n%s", ca_certificate(ca));
        CU_ASSERT_EQUAL_FATAL(inspect_trust_new(text, strlen(text), &trust), 0);
        CU_ASSERT_EQUAL(inspect_trust_check(trust), 0);
        inspect_trust_unref(trust);
        ca_unref(ca);
}

/* VMs with the same CA share, also over a reload that brought the same bundle; others do not. */
static void test_shared_by_all_that_have_the_same(void)
{
        struct ca *ca = make_ca(), *other = make_ca();
        struct inspect_trust *trust = make_trust(ca), *again = make_trust(ca), *another = make_trust(other);
        struct inspect_list list = LIST_HEAD_INITIALIZER(list);
        struct inspect *a, *b, *c, *d;

        CU_ASSERT_EQUAL_FATAL(inspect_get(&list, ca, trust, &a), 0);
        CU_ASSERT_EQUAL_FATAL(inspect_get(&list, ca, again, &b), 0);
        CU_ASSERT_PTR_EQUAL(a, b);
        CU_ASSERT_EQUAL_FATAL(inspect_get(&list, ca, another, &c), 0);
        CU_ASSERT_PTR_NOT_EQUAL(a, c);
        CU_ASSERT_EQUAL_FATAL(inspect_get(&list, other, trust, &d), 0);
        CU_ASSERT(d != a && d != c);
        CU_ASSERT(inspect_is_of(a, ca, again) && !inspect_is_of(a, other, trust) && !inspect_is_of(a, ca, another));
        inspect_unref(a);
        CU_ASSERT_EQUAL_FATAL(inspect_get(&list, ca, trust, &a), 0);
        CU_ASSERT_PTR_EQUAL(a, b);
        inspect_unref(a);
        inspect_unref(b);
        inspect_unref(c);
        inspect_unref(d);
        CU_ASSERT_PTR_NULL(LIST_FIRST(&list));
        inspect_trust_unref(trust);
        inspect_trust_unref(again);
        inspect_trust_unref(another);
        ca_unref(ca);
        ca_unref(other);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"what is no bundle", test_what_is_no_bundle},
                {"a bundle with a flaw", test_a_bundle_with_a_flaw},
                {"shared by all that have the same", test_shared_by_all_that_have_the_same},
                CU_TEST_INFO_NULL,
        };

        return suite_run("inspect", tests);
}
