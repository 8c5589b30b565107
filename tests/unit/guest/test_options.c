/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/options.h"

#include <errno.h>
#include <string.h>

#include "proto/base/options.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

static void test_listen(void)
{
        struct transport t = {0};
        uint32_t port = 0;

        CU_ASSERT_EQUAL(agent_options_parse_listen("unix:/run/x", &t, &port), 0);
        CU_ASSERT_EQUAL(t.kind, TRANSPORT_UNIX);
        CU_ASSERT_STRING_EQUAL(t.path, "/run/x");
        CU_ASSERT_EQUAL(port, WB_PORT_CONTROL);
        CU_ASSERT_EQUAL(agent_options_parse_listen("vsock:5000", &t, &port), 0);
        CU_ASSERT_EQUAL(t.kind, TRANSPORT_VSOCK);
        CU_ASSERT_EQUAL(port, 5000);
        CU_ASSERT_EQUAL(agent_options_parse_listen("vsock", &t, &port), 0);
        CU_ASSERT_EQUAL(port, WB_PORT_CONTROL);
}

static void test_nonsense_is_refused_and_changes_nothing(void)
{
        static const char *const bad[] = {"", "unix", "unix:", "vsock:", "vsock:0", "vsock:-1", "vsock: 1",
                "vsock:4294967295", "vsock:1x", "tcp:1024", "UNIX:/x"};

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                struct transport t = {.path = "kept"};
                uint32_t port = 7;

                CU_ASSERT_EQUAL(agent_options_parse_listen(bad[i], &t, &port), -EINVAL);
                CU_ASSERT_STRING_EQUAL(t.path, "kept");
                CU_ASSERT_EQUAL(port, 7);
        }
}

static void test_no_arguments_is_vsock(void)
{
        char name[] = "wbagent", *argv[] = {name, NULL};
        struct agent_options o;

        CU_ASSERT_EQUAL(agent_options_parse(1, argv, &o), 0);
        CU_ASSERT_EQUAL(o.listen.kind, TRANSPORT_VSOCK);
        CU_ASSERT_EQUAL(o.port, WB_PORT_CONTROL);
}

static void test_transparent(void)
{
        char name[] = "wbagent", on[] = "--transparent", off[] = "--no-transparent", quiet[] = "--no-proxy-variables";
        char *none[] = {name, NULL}, *both[] = {name, on, off, NULL}, *some[] = {name, off, quiet, NULL};
        struct agent_options o;

        CU_ASSERT_EQUAL(agent_options_parse(1, none, &o), 0);
        CU_ASSERT_FALSE(o.transparent || o.no_transparent || o.no_proxy_variables);
        CU_ASSERT_EQUAL(agent_options_parse(3, some, &o), 0);
        CU_ASSERT_TRUE(!o.transparent && o.no_transparent && o.no_proxy_variables);
        CU_ASSERT_EQUAL(agent_options_parse(3, both, &o), OPTIONS_E_USAGE);
}

static void test_what_is_done_without_a_host(void)
{
        char name[] = "wbagent", option[] = "--host-gone=thaw", after[] = "--host-gone-after=90s",
             bad[] = "--host-gone=panic";
        char *good_argv[] = {name, option, after, NULL}, *bad_argv[] = {name, bad, NULL}, *no_argv[] = {name, NULL};
        struct agent_options o;

        CU_ASSERT_EQUAL(agent_options_parse(1, no_argv, &o), 0);
        CU_ASSERT_EQUAL(o.host_gone, HOST_GONE_AUTO);
        CU_ASSERT_EQUAL(o.host_gone_ms, 600000);
        CU_ASSERT_EQUAL(agent_options_parse(3, good_argv, &o), 0);
        CU_ASSERT_EQUAL(o.host_gone, HOST_GONE_THAW);
        CU_ASSERT_EQUAL(o.host_gone_ms, 90000);
        CU_ASSERT_EQUAL(agent_options_parse(2, bad_argv, &o), OPTIONS_E_USAGE);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"--listen", test_listen},
                {"nonsense is refused and changes nothing", test_nonsense_is_refused_and_changes_nothing},
                {"no arguments is vsock", test_no_arguments_is_vsock},
                {"transparent", test_transparent},
                {"what is done without a host", test_what_is_done_without_a_host},
                CU_TEST_INFO_NULL,
        };

        return suite_run("options", tests);
}
