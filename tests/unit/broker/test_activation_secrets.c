/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/activation_secrets.h"

#include <errno.h>
#include <string.h>

#include "proto/wire/limits.h"
#include "tests/support/suite.h"

static int take(const char *text, struct activation_secrets **ret, const char **ret_fault)
{
        json_t *object = json_loads(text, JSON_DECODE_ANY, NULL);
        int r;

        CU_ASSERT_FATAL(object != NULL);
        r = activation_secrets_take(object, ret, ret_fault);
        json_decref(object);
        return r;
}

static void test_values_arrive_as_bytes(void)
{
        struct activation_secrets *s = NULL;
        Wb__Activate activate = WB__ACTIVATE__INIT;
        const char *fault = NULL;

        CU_ASSERT_FATAL(take("{\"TOKEN\": \"YQBi\", \"EMPTY\": \"\"}", &s, &fault) == 0);
        activation_secrets_fill(s, &activate);
        CU_ASSERT(activate.n_secrets == 2);
        for (size_t i = 0; i < activate.n_secrets; i++) {
                const Wb__Secret *secret = activate.secrets[i];

                if (strcmp(secret->name, "TOKEN") == 0)
                        CU_ASSERT(secret->value.len == 3 && memcmp(secret->value.data, "a\0b", 3) == 0)
                else
                        CU_ASSERT(strcmp(secret->name, "EMPTY") == 0 && secret->value.len == 0)
        }
        activation_secrets_free(s);
}

static void test_none_is_none(void)
{
        struct activation_secrets *s = (struct activation_secrets *)&s;
        Wb__Activate activate = WB__ACTIVATE__INIT;
        const char *fault = NULL;

        CU_ASSERT(activation_secrets_take(NULL, &s, &fault) == 0 && s == NULL);
        CU_ASSERT(take("{}", &s, &fault) == 0 && s == NULL);
        activation_secrets_fill(NULL, &activate);
        CU_ASSERT(activate.n_secrets == 0);
        activation_secrets_free(NULL);
}

static void test_what_is_no_secret_is_refused(void)
{
        static const char *const bad[] = {"[]", "\"x\"", "{\"A\": 1}", "{\"A\": \"not base64!\"}", "{\"A\": null}",
                "{\"\": \"YQ==\"}", "{\"1A\": \"YQ==\"}", "{\"A-B\": \"YQ==\"}", "{\"A\": \"YQ\"}"};

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                struct activation_secrets *s = NULL;
                const char *fault = NULL;

                CU_ASSERT(take(bad[i], &s, &fault) == -EINVAL && fault != NULL && s == NULL);
        }
}

static void test_too_many_or_too_large_are_refused(void)
{
        struct activation_secrets *s = NULL;
        const char *fault = NULL;
        json_t *object = json_object();
        static char large[4 * (WB_SECRET_MAX_BYTES / 3 + 2) + 1];
        char name[16];

        for (unsigned i = 0; i <= WB_SECRETS_MAX; i++) {
                (void)snprintf(name, sizeof(name), "S%u", i);
                (void)json_object_set_new(object, name, json_string("YQ=="));
        }
        CU_ASSERT(activation_secrets_take(object, &s, &fault) == -EINVAL && s == NULL);
        (void)json_object_clear(object);
        memset(large, 'A', sizeof(large) - 1);
        (void)json_object_set_new(object, "LARGE", json_string(large));
        CU_ASSERT(activation_secrets_take(object, &s, &fault) == -EINVAL && s == NULL);
        json_decref(object);
}

static void test_the_texts_are_wiped(void)
{
        struct activation_secrets *s = NULL;
        const char *fault = NULL;
        json_t *object = json_pack("{s:s, s:s}", "GOOD", "YWJj", "BAD", "###");

        CU_ASSERT(activation_secrets_take(object, &s, &fault) == -EINVAL);
        CU_ASSERT(memcmp(json_string_value(json_object_get(object, "GOOD")), "\0\0\0\0", 4) == 0);
        json_decref(object);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"values arrive as bytes", test_values_arrive_as_bytes},
                {"none is none", test_none_is_none},
                {"what is no secret is refused", test_what_is_no_secret_is_refused},
                {"too many or too large are refused", test_too_many_or_too_large_are_refused},
                {"the texts are wiped", test_the_texts_are_wiped},
                CU_TEST_INFO_NULL,
        };

        return suite_run("activation_secrets", tests);
}
