/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/config.h"

#include <stdio.h>
#include <string.h>

#include <CUnit/Basic.h>

static int load(const char *text, struct config **ret, struct yaml_error *ret_error)
{
        return config_load("c.yaml", text, strlen(text), ret, ret_error);
}

static struct config *load_good(const char *text)
{
        struct yaml_error error = {0};
        struct config *c = NULL;
        int r = load(text, &c, &error);

        if (r != 0)
                yaml_error_print(&error);
        yaml_error_done(&error);
        CU_ASSERT_EQUAL_FATAL(r, 0);
        return c;
}

static void test_defaults(void)
{
        struct config *c = load_good("vms: []\n");

        CU_ASSERT_STRING_EQUAL(c->state_dir, "/var/lib/wbbroker");
        CU_ASSERT_STRING_EQUAL(c->run_dir, "/run/wbbroker");
        CU_ASSERT_PTR_NULL(c->user);
        CU_ASSERT_EQUAL(c->workers, 0);
        CU_ASSERT_STRING_EQUAL(c->audit_dir, "/var/log/wbbroker");
        CU_ASSERT_TRUE(c->audit_required);
        CU_ASSERT_EQUAL(c->audit_rotate_bytes, 67108864);
        CU_ASSERT_EQUAL(c->audit_sync, AUDIT_SYNC_BATCH);
        CU_ASSERT_EQUAL(c->dns_servers_n, 0);
        CU_ASSERT_EQUAL(c->dns_timeout_ms, 2000);
        CU_ASSERT_EQUAL(c->dns_cache_max_s, 300);
        CU_ASSERT_TRUE(c->inspect_enabled);
        CU_ASSERT_STRING_EQUAL(c->inspect_upstream_ca, "/etc/ssl/certs/ca-certificates.crt");
        CU_ASSERT_EQUAL(c->request_head_ms, 10000);
        CU_ASSERT_EQUAL(c->client_hello_ms, 5000);
        CU_ASSERT_EQUAL(c->connect_ms, 10000);
        CU_ASSERT_EQUAL(c->idle_ms, 600000);
        CU_ASSERT_EQUAL(c->clock_check_s, 300);
        CU_ASSERT_EQUAL(c->vsock_port, 0);
        CU_ASSERT_FALSE(c->wall.allow_container_standard);
        CU_ASSERT_FALSE(c->wall.trust_declared);
        CU_ASSERT_EQUAL(c->wall.required, 0);
        CU_ASSERT_EQUAL(c->wall.programs_n, 0);
        CU_ASSERT_EQUAL(c->wall.recheck_s, 60);
        config_free(c);
}

static const char every_key[] =
        "state_dir: /s\n"
        "run_dir: /r\n"
        "user: wbbroker\n"
        "workers: 3\n"
        "audit: {dir: /a, required: false, rotate_bytes: 5000, sync: each}\n"
        "dns: {servers: [9.9.9.9, \"2620:fe::fe\"], timeout_ms: 100, cache_max_s: 7}\n"
        "floor: {deny: [5.5.5.0/24], deny_names: [vault.example.org]}\n"
        "services:\n"
        "  - {name: mirror.example.internal, ports: [443, 8443], connect: \"10.0.0.5:443\"}\n"
        "  - {name: other.example.internal, connect: \"unix:/run/mirror.sock\"}\n"
        "  - {name: six.example.internal, ports: [80], connect: \"[fd00::7]:80\"}\n"
        "inspect: {enabled: false, upstream_ca: /ca.pem}\n"
        "timeouts: {request_head_ms: 1, client_hello_ms: 2, connect_ms: 3, idle_ms: 4}\n"
        "clock: {check_s: 5}\n"
        "vsock: {port: 1025}\n"
        "allow_container_standard: true\n"
        "isolation: {trust_declared: true, require_layers: [uid, cgroup], recheck_s: 7, programs: [{path: /bin/a}, "
        "{sha256: "
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}\n"
        "vms:\n"
        "  - name: one\n"
        "    backend: firecracker\n"
        "    transport: hybrid\n"
        "    path: /run/vm/one.vsock\n"
        "    pid: 4242\n"
        "    agent: false\n"
        "    policy: one.yaml\n"
        "  - {name: two, backend: qemu, transport: vsock, cid: 7, policy: two.yaml}\n";

static void test_every_key_is_bound(void)
{
        struct config *c = load_good(every_key);

        CU_ASSERT_STRING_EQUAL(c->state_dir, "/s");
        CU_ASSERT_STRING_EQUAL(c->run_dir, "/r");
        CU_ASSERT_STRING_EQUAL(c->user, "wbbroker");
        CU_ASSERT_EQUAL(c->workers, 3);
        CU_ASSERT_STRING_EQUAL(c->audit_dir, "/a");
        CU_ASSERT_FALSE(c->audit_required);
        CU_ASSERT_EQUAL(c->audit_rotate_bytes, 5000);
        CU_ASSERT_EQUAL(c->audit_sync, AUDIT_SYNC_EACH);
        CU_ASSERT_EQUAL_FATAL(c->dns_servers_n, 2);
        CU_ASSERT_STRING_EQUAL(c->dns_servers[1].text, "2620:fe::fe");
        CU_ASSERT_EQUAL(c->dns_timeout_ms, 100);
        CU_ASSERT_EQUAL(c->dns_cache_max_s, 7);
        CU_ASSERT_EQUAL_FATAL(c->floor_deny_n, 1);
        CU_ASSERT_EQUAL(c->floor_deny[0].bits, 24);
        CU_ASSERT_EQUAL_FATAL(c->floor_deny_names_n, 1);
        CU_ASSERT_STRING_EQUAL(c->floor_deny_names[0], "vault.example.org");
        CU_ASSERT_EQUAL_FATAL(c->services_n, 3);
        CU_ASSERT_STRING_EQUAL(c->services[0].name, "mirror.example.internal");
        CU_ASSERT_EQUAL_FATAL(c->services[0].ports_n, 2);
        CU_ASSERT_EQUAL(c->services[0].ports[1], 8443);
        CU_ASSERT_STRING_EQUAL(c->services[0].connect, "10.0.0.5:443");
        CU_ASSERT_EQUAL(c->services[1].ports_n, 2);
        CU_ASSERT_STRING_EQUAL(c->services[1].connect, "unix:/run/mirror.sock");
        CU_ASSERT_FALSE(c->inspect_enabled);
        CU_ASSERT_STRING_EQUAL(c->inspect_upstream_ca, "/ca.pem");
        CU_ASSERT_EQUAL(c->request_head_ms, 1);
        CU_ASSERT_EQUAL(c->client_hello_ms, 2);
        CU_ASSERT_EQUAL(c->connect_ms, 3);
        CU_ASSERT_EQUAL(c->idle_ms, 4);
        CU_ASSERT_EQUAL(c->clock_check_s, 5);
        CU_ASSERT_EQUAL(c->vsock_port, 1025);
        CU_ASSERT_TRUE(c->wall.allow_container_standard);
        CU_ASSERT_TRUE(c->wall.trust_declared);
        CU_ASSERT_EQUAL(c->wall.required, LAYER_BIT(LAYER_UID) | LAYER_BIT(LAYER_CGROUP));
        CU_ASSERT_EQUAL(c->wall.recheck_s, 7);
        CU_ASSERT_EQUAL_FATAL(c->wall.programs_n, 2);
        CU_ASSERT_STRING_EQUAL(c->wall.programs[0].path, "/bin/a");
        CU_ASSERT_FALSE(c->wall.programs[0].has_sha256);
        CU_ASSERT_PTR_NULL(c->wall.programs[1].path);
        CU_ASSERT_TRUE(c->wall.programs[1].has_sha256);
        CU_ASSERT_EQUAL(c->wall.programs[1].sha256[0], 0x01);
        CU_ASSERT_EQUAL(c->wall.programs[1].sha256[31], 0xef);
        CU_ASSERT_EQUAL_FATAL(c->vms_n, 2);
        CU_ASSERT_STRING_EQUAL(c->vms[0].name, "one");
        CU_ASSERT_EQUAL(c->vms[0].backend, BACKEND_FIRECRACKER);
        CU_ASSERT_EQUAL(c->vms[0].transport, TRANSPORT_HYBRID);
        CU_ASSERT_STRING_EQUAL(c->vms[0].path, "/run/vm/one.vsock");
        CU_ASSERT_EQUAL(c->vms[0].pid, 4242);
        CU_ASSERT_FALSE(c->vms[0].agent);
        CU_ASSERT_STRING_EQUAL(c->vms[0].policy.text, "one.yaml");
        CU_ASSERT_EQUAL(c->vms[0].policy.line, 25);
        CU_ASSERT_EQUAL(c->vms[0].policy.column, 13);
        CU_ASSERT_EQUAL(c->vms[1].cid, 7);
        CU_ASSERT_TRUE(c->vms[1].agent);
        config_free(c);
}

#define VM(rest) "vms:\n  - {name: a, backend: runc, policy: p.yaml, " rest "}\n"

static const struct {
        const char *text;
        unsigned line, column;
        const char *message; /* is part of it */
} bad[] = {
        {"", 1, 1, ""},
        {"state_dirs: /s\n", 1, 1, "state_dir"},
        {"state_dir: s\n", 1, 12, "absolute"},
        {"run_dir: /r\nrun_dir: /r\n", 2, 1, ""},
        {"user: \"\"\n", 1, 7, "empty"},
        {"workers: 257\n", 1, 10, ""},
        {"workers: -1\n", 1, 10, ""},
        {"workers: \"2\"\n", 1, 10, ""},
        {"audit: {dirs: /a}\n", 1, 9, "dir"},
        {"audit: {rotate_bytes: 100}\n", 1, 23, ""},
        {"audit: {sync: always}\n", 1, 15, "each"},
        {"audit: []\n", 1, 8, ""},
        {"dns: {servers: 9.9.9.9}\n", 1, 16, "list"},
        {"dns: {servers: [9.9.9.9, dns.example.org]}\n", 1, 26, "IP addresses"},
        {"dns: {servers: [\"9.9.9.9:53\"]}\n", 1, 17, "IP addresses"},
        {"dns: {servers: [0x7f.1]}\n", 1, 17, "IP addresses"},
        {"dns: {timeout_ms: 0}\n", 1, 19, ""},
        {"floor: {deny: [10.0.0.1/8]}\n", 1, 16, "10.0.0.0/8"},
        {"floor: {deny: [example.org]}\n", 1, 16, "prefixes"},
        {"floor: {deny_names: [Example.org]}\n", 1, 22, "example.org"},
        {"floor: {deny_names: [\"*.example.org\"]}\n", 1, 22, "host name"},
        {"services: [{name: a.example.org}]\n", 1, 12, "connect"},
        {"services: [{name: a.example.org, connect: \"127.0.0.1:80\"}]\n", 1, 43, "loopback"},
        {"services: [{name: a.example.org, connect: \"0.0.0.0:80\"}]\n", 1, 43, "host itself"},
        {"services: [{name: a.example.org, connect: \"0x7f.1:80\"}]\n", 1, 43, "loopback"},
        {"services: [{name: a.example.org, connect: \"169.254.169.254:80\"}]\n", 1, 43, "link-local"},
        {"services: [{name: a.example.org, connect: \"224.0.0.1:80\"}]\n", 1, 43, "multicast"},
        {"services: [{name: a.example.org, connect: \"[::1]:80\"}]\n", 1, 43, "host itself"},
        {"services: [{name: a.example.org, connect: \"[fe80::1]:80\"}]\n", 1, 43, "link-local"},
        {"services: [{name: a.example.org, connect: \"[ff02::1]:80\"}]\n", 1, 43, "multicast"},
        {"services: [{name: a.example.org, connect: \"[fd00:ec2::254]:80\"}]\n", 1, 43, "metadata"},
        {"services: [{name: a.example.org, connect: \"[::ffff:127.0.0.1]:80\"}]\n", 1, 43, "IPv4"},
        {"services: [{name: a.example.org, connect: \"10.0.0.5\"}]\n", 1, 43, "ADDRESS:PORT"},
        {"services: [{name: a.example.org, connect: \"db.example.org:80\"}]\n", 1, 43, "not resolved"},
        {"services: [{name: a.example.org, connect: \"unix:run/x\"}]\n", 1, 43, "absolute"},
        {"services: [{name: a.example.org, ports: [0], connect: \"10.0.0.5:1\"}]\n", 1, 42, ""},
        {"services: [{name: 10.0.0.5, connect: \"10.0.0.5:1\"}]\n", 1, 19, "host name"},
        {"services: [{name: a.example.org, connect: \"10.0.0.5:1\"}, {name: a.example.org, connect: \"10.0.0.6:1\"}]\n",
                1, 65, "already"},
        {"inspect: {enabled: maybe}\n", 1, 20, ""},
        {"inspect: {upstream_ca: ca.pem}\n", 1, 24, "absolute"},
        {"timeouts: {idle_ms: 86400001}\n", 1, 21, ""},
        {"clock: {check_s: 0}\n", 1, 18, ""},
        {"clock: {check_s: 86401}\n", 1, 18, ""},
        {"clock: {check_ms: 1}\n", 1, 9, ""},
        {"vsock: {port: 0}\n", 1, 15, ""},
        {"isolation: {require_layers: [seccomp, kvm]}\n", 1, 39, "uid, seccomp, netns, chroot or cgroup"},
        {"isolation: {require_layers: [uid, uid]}\n", 1, 35, "already"},
        {"isolation: {recheck_s: 0}\n", 1, 24, ""},
        {"isolation: {programs: [{}]}\n", 1, 24, "path or sha256"},
        {"isolation: {programs: [{path: a}]}\n", 1, 31, "absolute"},
        {"isolation: {programs: [{sha256: 12}]}\n", 1, 33, "64 hexadecimal"},
        {"isolation: {programs: [{sha256: 0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef}]}\n", 1, 33,
                "lower case"},
        {"isolation: {require_layers: seccomp}\n", 1, 29, "list"},
        {"vms: [{name: a, backend: runc, policy: p}]\n", 1, 7, "transport"},
        {VM("transport: unix"), 2, 5, "`path`"},
        {VM("transport: unix, path: run"), 2, 69, "absolute"},
        {VM("transport: unix, path: /x, cid: 5"), 2, 5, "no `cid`"},
        {VM("transport: vsock, cid: 5"), 2, 5, "listener"},
        {"vsock: {port: 1025}\n" VM("transport: vsock, cid: 2"), 3, 69, ""},
        {"vsock: {port: 1025}\n" VM("transport: vsock, path: /x"), 3, 5, "`cid`"},
        {VM("transport: tcp, path: /x"), 2, 57, "hybrid"},
        {VM("transport: unix, path: /x, pid: 0"), 2, 78, ""},
        {"vms:\n  - {name: -a, backend: runc, policy: p, transport: unix, path: /x}\n", 2, 5, "name"},
        {"vms:\n  - {name: a/b, backend: runc, policy: p, transport: unix, path: /x}\n", 2, 5, "name"},
        {"vms:\n  - {name: a, backend: kata, policy: p, transport: unix, path: /x}\n", 2, 24, "broker mode"},
        {"vms:\n  - {name: a, backend: kubernetes, policy: p, transport: unix, path: /x}\n", 2, 24, "pod"},
        {"vms:\n  - {name: a, backend: k8s, policy: p, transport: unix, path: /x}\n", 2, 24, "pod"},
        {"vms:\n  - {name: a, backend: docker, policy: p, transport: unix, path: /x}\n", 2, 24, "firecracker"},
        {VM("transport: unix, path: /x") "  - {name: a, backend: runc, policy: p, transport: unix, path: /y}\n", 3, 12,
                "already"},
        {VM("transport: unix, path: /x") "  - {name: b, backend: runc, policy: p, transport: unix, path: /x}\n", 3, 64,
                "already"},
};

static void test_bad_files_say_where(void)
{
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                struct yaml_error error = {0};
                struct config *c = NULL;
                int r = load(bad[i].text, &c, &error);

                if (r != YAML_E_INVALID || error.line != bad[i].line || error.column != bad[i].column ||
                        !strstr(error.message, bad[i].message))
                        printf("\n%s%d %u:%u: %s\n", bad[i].text, r, error.line, error.column, error.message);
                CU_ASSERT_EQUAL(r, YAML_E_INVALID);
                CU_ASSERT_EQUAL(error.line, bad[i].line);
                CU_ASSERT_EQUAL(error.column, bad[i].column);
                CU_ASSERT_PTR_NOT_NULL(strstr(error.message, bad[i].message));
                CU_ASSERT_PTR_NULL(c);
                yaml_error_done(&error);
        }
}

static void test_path_that_no_socket_holds(void)
{
        char text[512], path[120];
        struct yaml_error error = {0};
        struct config *c = NULL;

        /* sun_path has 108 bytes: /1025 and the NUL leave 102. */
        memset(path, 'p', sizeof(path));
        path[0] = '/';
        path[102] = '\0';
        (void)snprintf(text, sizeof(text), VM("transport: unix, path: %s"), path);
        c = load_good(text);
        config_free(c);
        path[102] = 'p';
        path[103] = '\0';
        (void)snprintf(text, sizeof(text), VM("transport: unix, path: %s"), path);
        CU_ASSERT_EQUAL(load(text, &c, &error), YAML_E_INVALID);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "too long"));
        yaml_error_done(&error);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"defaults", test_defaults},
                {"every key is bound", test_every_key_is_bound},
                {"bad files say where", test_bad_files_say_where},
                {"a path that no socket holds", test_path_that_no_socket_holds},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"config", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
