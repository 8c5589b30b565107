/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/layer.h"

#include <errno.h>
#include <string.h>

#include "tests/support/cases.h"

/* A jailed microVM: every layer stands. */
static struct evidence jailed(int pid, uint32_t uid)
{
        return (struct evidence){
                .exists = true,
                .pid = pid,
                .threads = {.n = 3, .filtered = 3, .bound = 3, .uids = {uid, uid, uid, uid}},
                .kvm = {.vms = 1, .vcpus = 2},
                .program = {.path = "/usr/bin/firecracker", .sha256 = {1, 2, 3}},
                .root = {.own = true},
                .namespaces = {{.own = true}, {.own = true}, {.own = true}, {.own = true}},
                .cgroup = {.path = "/vm/a", .ceilings = {1500, 1 << 30, 100, 1}},
                .memory = {.shared_n = 1, .shared = {{1, (uint64_t)pid, true}}},
        };
}

static struct layers find(struct evidence e, enum backend backend)
{
        struct layers layers;

        layers_find(&(struct layer_question){.backend = backend, .evidence = &e, .broker_uid = 999}, &layers);
        return layers;
}

static void test_every_layer_of_a_jail_is_present(void)
{
        struct layers layers = find(jailed(7, 1000), BACKEND_FIRECRACKER);

        CU_ASSERT_EQUAL(layers_in(&layers, LAYER_PRESENT), LAYER_BIT(LAYER_MAX_) - 1);
        for (int i = 0; i < LAYER_MAX_; i++) {
                CU_ASSERT_PTR_NOT_NULL(layer_name((enum layer)i));
                CU_ASSERT_NOT_EQUAL(layers.of[i].fact[0], '\0');
        }
        CU_ASSERT_PTR_NOT_NULL(strstr(layers.of[LAYER_PROGRAM].fact, "sha256 010203"));
        CU_ASSERT_STRING_EQUAL(layers.of[LAYER_CGROUP].fact, "/vm/a: cpu 1.500 memory 1073741824 bytes pids 100 io");
}

/* One change each, what becomes of which layer, and a word of the fact that says so. */
#define CHANGE(name, ...)                                                                                              \
        static void name(struct evidence *e)                                                                           \
        {                                                                                                              \
                __VA_ARGS__;                                                                                           \
        }

CHANGE(other_program, strcpy(e->program.path, "/bin/sleep"))
CHANGE(no_vm, e->kvm.vms = 0)
CHANGE(no_vcpu, e->kvm.vcpus = 0)
CHANGE(root_user, memset(e->threads.uids, 0, sizeof(e->threads.uids)))
CHANGE(saved_root, e->threads.uids[2] = 0)
CHANGE(mixed_users, e->threads.other_uids = 1)
CHANGE(brokers_user, for (int i = 0; i < 4; i++) e->threads.uids[i] = 999)
CHANGE(one_unfiltered, e->threads.filtered = 2)
CHANGE(one_unbound, e->threads.bound = 2)
CHANGE(capable, e->threads.capabilities = 0x400)
CHANGE(hosts_root, e->root.own = false)
CHANGE(hosts_net, e->namespaces[NAMESPACE_NET].own = false)
CHANGE(hosts_mounts, e->namespaces[NAMESPACE_MOUNT].own = false)
CHANGE(hosts_pids, e->namespaces[NAMESPACE_PID].own = false)
CHANGE(hosts_users, e->namespaces[NAMESPACE_USER].own = false)
CHANGE(no_cpu, e->cgroup.ceilings[CEILING_CPU] = 0)
CHANGE(no_memory, e->cgroup.ceilings[CEILING_MEMORY] = 0)
CHANGE(no_pids, e->cgroup.ceilings[CEILING_PIDS] = 0)
CHANGE(no_io, e->cgroup.ceilings[CEILING_IO] = 0)
CHANGE(io_unreadable, e->cgroup.ceilings[CEILING_IO] = 0; e->cgroup.ceiling_errors[CEILING_IO] = EACCES)
CHANGE(program_unreadable, e->program.error = EACCES)
CHANGE(kvm_unreadable, e->kvm.error = EACCES)
CHANGE(threads_unreadable, e->threads.error = EACCES)
CHANGE(root_unreadable, e->root.error = EACCES)
CHANGE(net_unreadable, e->namespaces[NAMESPACE_NET].error = EACCES)
CHANGE(cgroup_unreadable, e->cgroup.error = EACCES)
CHANGE(memory_unreadable, e->memory.error = EACCES)

static const struct {
        void (*change)(struct evidence *e);
        enum layer layer;
        enum layer_state state;
        const char *fact;
} changes[] = {
        {other_program, LAYER_PROGRAM, LAYER_ABSENT, "/bin/sleep"},
        {program_unreadable, LAYER_PROGRAM, LAYER_UNREADABLE, "Permission denied"},
        {no_vm, LAYER_KVM, LAYER_ABSENT, "no KVM VM"},
        {no_vcpu, LAYER_KVM, LAYER_ABSENT, "without a vCPU"},
        {kvm_unreadable, LAYER_KVM, LAYER_UNREADABLE, "Permission denied"},
        {root_user, LAYER_UID, LAYER_ABSENT, "root"},
        {saved_root, LAYER_UID, LAYER_ABSENT, "saved 0"},
        {mixed_users, LAYER_UID, LAYER_ABSENT, "1 of 3 threads"},
        {brokers_user, LAYER_UID, LAYER_ABSENT, "broker's"},
        {threads_unreadable, LAYER_UID, LAYER_UNREADABLE, "Permission denied"},
        {one_unfiltered, LAYER_SECCOMP, LAYER_ABSENT, "2 of 3"},
        {threads_unreadable, LAYER_SECCOMP, LAYER_UNREADABLE, "Permission denied"},
        {one_unbound, LAYER_NO_NEW_PRIVS, LAYER_ABSENT, "2 of 3"},
        {threads_unreadable, LAYER_NO_NEW_PRIVS, LAYER_UNREADABLE, "Permission denied"},
        {capable, LAYER_CAPABILITIES, LAYER_ABSENT, "0000000000000400"},
        {threads_unreadable, LAYER_CAPABILITIES, LAYER_UNREADABLE, "Permission denied"},
        {hosts_root, LAYER_CHROOT, LAYER_ABSENT, "host's root"},
        {root_unreadable, LAYER_CHROOT, LAYER_UNREADABLE, "Permission denied"},
        {hosts_net, LAYER_NETNS, LAYER_ABSENT, "network"},
        {net_unreadable, LAYER_NETNS, LAYER_UNREADABLE, "Permission denied"},
        {hosts_mounts, LAYER_MNTNS, LAYER_ABSENT, "mount"},
        {hosts_pids, LAYER_PIDNS, LAYER_ABSENT, "pid"},
        {hosts_users, LAYER_USERNS, LAYER_ABSENT, "user"},
        {no_cpu, LAYER_CGROUP, LAYER_ABSENT, "no ceiling on cpu"},
        {no_memory, LAYER_CGROUP, LAYER_ABSENT, "no ceiling on memory"},
        {no_pids, LAYER_CGROUP, LAYER_ABSENT, "no ceiling on pids"},
        {no_io, LAYER_CGROUP, LAYER_ABSENT, "no ceiling on io"},
        {io_unreadable, LAYER_CGROUP, LAYER_UNREADABLE, "io (unreadable)"},
        {cgroup_unreadable, LAYER_CGROUP, LAYER_UNREADABLE, "Permission denied"},
        {memory_unreadable, LAYER_MEMORY, LAYER_UNREADABLE, "Permission denied"},
};

static void test_one_change_takes_one_layer(void)
{
        for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
                struct evidence e = jailed(7, 1000);
                struct layers layers;
                bool many = changes[i].change == threads_unreadable;

                changes[i].change(&e);
                layers = find(e, BACKEND_FIRECRACKER);
                CU_ASSERT_EQUAL(layers.of[changes[i].layer].state, changes[i].state);
                CU_ASSERT_PTR_NOT_NULL(strstr(layers.of[changes[i].layer].fact, changes[i].fact));
                if (!many)
                        CU_ASSERT_EQUAL(layers_in(&layers, LAYER_PRESENT),
                                (LAYER_BIT(LAYER_MAX_) - 1) & ~LAYER_BIT(changes[i].layer));
        }
}

static void test_no_process_has_no_layer(void)
{
        struct layers layers = find((struct evidence){.exists = false}, BACKEND_FIRECRACKER);

        CU_ASSERT_EQUAL(layers_in(&layers, LAYER_UNREADABLE), LAYER_BIT(LAYER_MAX_) - 1);
}

static void test_what_each_backend_runs(void)
{
        static const struct {
                enum backend backend;
                const char *program;
                bool sandbox, present;
        } rows[] = {
                {BACKEND_FIRECRACKER, "/firecracker", false, true},
                {BACKEND_FIRECRACKER, "/opt/firecracker-v1.9.0-x86_64", false, true},
                {BACKEND_FIRECRACKER, "/usr/bin/qemu-system-x86_64", false, false},
                {BACKEND_CLOUD_HYPERVISOR, "/usr/bin/cloud-hypervisor-static", false, true},
                {BACKEND_CLOUD_HYPERVISOR, "/usr/bin/firecracker", false, false},
                {BACKEND_QEMU, "/usr/bin/qemu-system-x86_64", false, true},
                {BACKEND_QEMU, "/usr/libexec/qemu-kvm", false, true},
                {BACKEND_QEMU, "/tmp/qemu-dir/sleep", false, false},
                {BACKEND_GVISOR, "/usr/bin/runsc", true, true},
                {BACKEND_GVISOR, "/usr/bin/runsc", false, false},
                {BACKEND_GVISOR, "/usr/bin/runc", true, false},
                {BACKEND_RUNC, "/bin/sh", false, true},
                {BACKEND_OTHER, "/bin/sh", false, true},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                struct evidence e = jailed(7, 1000);
                struct layers layers;

                strcpy(e.program.path, rows[i].program);
                e.threads.is_gvisor_sandbox = rows[i].sandbox;
                layers = find(e, rows[i].backend);
                CU_ASSERT_EQUAL(layers.of[LAYER_PROGRAM].state, rows[i].present ? LAYER_PRESENT : LAYER_ABSENT);
        }
}

static void test_programs_of_the_operators_list(void)
{
        char right[] = "/usr/bin/firecracker", wrong[] = "/opt/firecracker";
        static const struct {
                int path; /* 0 none, 1 right, -1 wrong */
                int digest;
                bool unreadable;
                enum layer_state state;
        } rows[] = {
                {1, 0, false, LAYER_PRESENT},
                {-1, 0, false, LAYER_ABSENT},
                {0, 1, false, LAYER_PRESENT},
                {0, -1, false, LAYER_ABSENT},
                {1, 1, false, LAYER_PRESENT},
                {1, -1, false, LAYER_ABSENT},
                {-1, 1, false, LAYER_ABSENT},
                {1, 0, true, LAYER_PRESENT},
                {0, 1, true, LAYER_ABSENT},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                struct allowed_program list[2] = {{.path = wrong, .has_sha256 = true, .sha256 = {9}}};
                struct evidence e = jailed(7, 1000);
                struct layer_question q = {
                        .backend = BACKEND_FIRECRACKER, .evidence = &e, .programs = list, .programs_n = 2};
                struct layers layers;

                list[1].path = rows[i].path == 0 ? NULL : rows[i].path > 0 ? right : wrong;
                list[1].has_sha256 = rows[i].digest != 0;
                if (rows[i].digest > 0)
                        memcpy(list[1].sha256, e.program.sha256, sizeof(e.program.sha256));
                e.program.digest_error = rows[i].unreadable ? EACCES : 0;
                layers_find(&q, &layers);
                CU_ASSERT_EQUAL(layers.of[LAYER_PROGRAM].state, rows[i].state);
                /* What runs first in a container is the container's own. */
                q.backend = BACKEND_RUNC;
                layers_find(&q, &layers);
                CU_ASSERT_EQUAL(layers.of[LAYER_PROGRAM].state, LAYER_PRESENT);
        }
}

static struct layers find_beside(struct evidence e, struct evidence other, bool earlier)
{
        const struct neighbour n = {"other", &other, earlier};
        struct layers layers;

        layers_find(
                &(struct layer_question){
                        .backend = BACKEND_FIRECRACKER, .evidence = &e, .neighbours = &n, .neighbours_n = 1},
                &layers);
        return layers;
}

static void test_a_shared_uid_is_not_the_later_ones_own(void)
{
        struct layers later = find_beside(jailed(8, 1000), jailed(7, 1000), true);
        struct layers earlier = find_beside(jailed(7, 1000), jailed(8, 1000), false);
        struct layers apart = find_beside(jailed(8, 1001), jailed(7, 1000), true);

        CU_ASSERT_EQUAL(later.of[LAYER_UID].state, LAYER_ABSENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(later.of[LAYER_UID].fact, "shared with VM 'other'"));
        CU_ASSERT_EQUAL(earlier.of[LAYER_UID].state, LAYER_PRESENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(earlier.of[LAYER_UID].fact, "'other', added later, shares it"));
        CU_ASSERT_EQUAL(apart.of[LAYER_UID].state, LAYER_PRESENT);
}

static void test_shared_memory_is_both_ones_fault(void)
{
        struct evidence a = jailed(7, 1000), b = jailed(8, 1001);

        CU_ASSERT_EQUAL(find_beside(a, b, true).of[LAYER_MEMORY].state, LAYER_PRESENT);
        a.memory.shared[0] = b.memory.shared[0];
        CU_ASSERT_EQUAL(find_beside(a, b, true).of[LAYER_MEMORY].state, LAYER_ABSENT);
        CU_ASSERT_EQUAL(find_beside(b, a, false).of[LAYER_MEMORY].state, LAYER_ABSENT);
        /* One writes, the other reads: still a way. Both only read: none. */
        a.memory.shared[0].writable = false;
        CU_ASSERT_EQUAL(find_beside(a, b, true).of[LAYER_MEMORY].state, LAYER_ABSENT);
        b.memory.shared[0].writable = false;
        CU_ASSERT_EQUAL(find_beside(a, b, true).of[LAYER_MEMORY].state, LAYER_PRESENT);
        /* The same number on another device is another file. */
        a = jailed(7, 1000);
        a.memory.shared[0] = (struct evidence_mapping){2, 8, true};
        CU_ASSERT_EQUAL(find_beside(a, jailed(8, 1001), true).of[LAYER_MEMORY].state, LAYER_PRESENT);
}

static void test_one_process_is_one_vm(void)
{
        struct layers later = find_beside(jailed(7, 1000), jailed(7, 1000), true);
        struct layers earlier = find_beside(jailed(7, 1000), jailed(7, 1000), false);

        CU_ASSERT_EQUAL(later.of[LAYER_MEMORY].state, LAYER_ABSENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(later.of[LAYER_MEMORY].fact, "same process"));
        CU_ASSERT_EQUAL(earlier.of[LAYER_MEMORY].state, LAYER_PRESENT);
}

static void test_processes_below_a_sandbox_count(void)
{
        struct evidence e = jailed(7, 1000);
        struct layers layers;

        e.threads.children = 2;
        layers = find(e, BACKEND_GVISOR);
        CU_ASSERT_EQUAL(layers.of[LAYER_SECCOMP].state, LAYER_PRESENT);
        e.threads.children_unfiltered = 1;
        layers = find(e, BACKEND_GVISOR);
        CU_ASSERT_EQUAL(layers.of[LAYER_SECCOMP].state, LAYER_ABSENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(layers.of[LAYER_SECCOMP].fact, "1 of 2 processes"));
}

static void test_facts_are_printable(void)
{
        struct evidence e = jailed(7, 1000);
        struct layers layers;

        strcpy(e.program.path, "/tmp/\x1b[2J\n\xff\xc3\xbc/sleep");
        strcpy(e.cgroup.path, "/\x7f\x01");
        layers = find(e, BACKEND_QEMU);
        for (int i = 0; i < LAYER_MAX_; i++)
                for (const char *p = layers.of[i].fact; *p; p++)
                        CU_ASSERT_TRUE(*p >= ' ' && *p <= '~');
        CU_ASSERT_PTR_NOT_NULL(strstr(layers.of[LAYER_PROGRAM].fact, "/tmp/?[2J????"
                                                                     "/sleep"));
}

static void test_sets_are_printed(void)
{
        char text[64], small[8];

        layer_set_print(0, text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, "none");
        layer_set_print(LAYER_BIT(LAYER_UID) | LAYER_BIT(LAYER_CGROUP), text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, "uid, cgroup");
        layer_set_print(LAYER_BIT(LAYER_MAX_) - 1, small, sizeof(small));
        CU_ASSERT_EQUAL(strlen(small), sizeof(small) - 1);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"every layer of a jail is present", test_every_layer_of_a_jail_is_present},
                {"one change takes one layer", test_one_change_takes_one_layer},
                {"no process has no layer", test_no_process_has_no_layer},
                {"what each backend runs", test_what_each_backend_runs},
                {"programs of the operator's list", test_programs_of_the_operators_list},
                {"a shared uid is not the later one's own", test_a_shared_uid_is_not_the_later_ones_own},
                {"shared memory is both ones' fault", test_shared_memory_is_both_ones_fault},
                {"one process is one VM", test_one_process_is_one_vm},
                {"processes below a sandbox count", test_processes_below_a_sandbox_count},
                {"facts are printable", test_facts_are_printable},
                {"sets are printed", test_sets_are_printed},
                CU_TEST_INFO_NULL,
        };

        return cases_run("layer", tests);
}
