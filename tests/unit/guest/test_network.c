/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/network.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/suite.h"

static bool has(char **env, const char *entry)
{
        for (; *env; env++)
                if (strcmp(*env, entry) == 0)
                        return true;
        return false;
}

static size_t count(char **env)
{
        size_t n = 0;

        while (env[n])
                n++;
        return n;
}

static void test_no_way_out_sets_nothing(void)
{
        char **env = NULL;

        CU_ASSERT_EQUAL_FATAL(network_make_env(false, NULL, &env), 0);
        CU_ASSERT_EQUAL(count(env), 0);
        network_free_env(env);
}

static void test_proxy_in_every_spelling(void)
{
        char **env = NULL;

        CU_ASSERT_EQUAL_FATAL(network_make_env(true, NULL, &env), 0);
        CU_ASSERT_TRUE(has(env, "http_proxy=http://127.0.0.1:3128"));
        CU_ASSERT_TRUE(has(env, "HTTPS_PROXY=http://127.0.0.1:3128"));
        CU_ASSERT_TRUE(has(env, "all_proxy=http://127.0.0.1:3128"));
        CU_ASSERT_TRUE(has(env, "no_proxy=localhost,127.0.0.1,::1"));
        CU_ASSERT_TRUE(has(env, "NO_PROXY=localhost,127.0.0.1,::1"));
        CU_ASSERT_EQUAL(count(env), 8); /* and nothing of certificates */
        network_free_env(env);
}

static void test_certificates_only_where_given(void)
{
        char **env = NULL;

        CU_ASSERT_EQUAL_FATAL(network_make_env(false, "/run/wbagent/ca.pem", &env), 0);
        CU_ASSERT_TRUE(has(env, "SSL_CERT_FILE=/run/wbagent/ca.pem"));
        CU_ASSERT_FALSE(has(env, "http_proxy=http://127.0.0.1:3128"));
        network_free_env(env);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"no way out sets nothing", test_no_way_out_sets_nothing},
                {"the proxy in every spelling", test_proxy_in_every_spelling},
                {"certificates only where given", test_certificates_only_where_given},
                CU_TEST_INFO_NULL,
        };

        return suite_run("network", tests);
}
