/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/wall.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/Basic.h>

static struct wall decide(enum backend backend, enum isolation_class class, const struct evidence *evidence, bool trust)
{
        const struct policy policy = {.isolation = class, .require_isolation = -1};
        struct wall_question q = {
                .backend = backend, .has_evidence = evidence != NULL, .trust_declared = trust, .policy = &policy};
        struct wall w;

        if (evidence)
                q.evidence = *evidence;
        wall_decide(&q, &w);
        return w;
}

static const struct evidence kvm = {
        .exists = true, .readable = true, .kvm_vm = true, .program = "/usr/bin/firecracker"};

static void test_evidence_proves_the_declaration(void)
{
        struct wall w = decide(BACKEND_FIRECRACKER, CLASS_HOSTILE, &kvm, false);

        CU_ASSERT_EQUAL(w.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(w.tier, TIER_MICROVM);
        CU_ASSERT_TRUE(w.verified);
}

/* Each lacks one thing. */
static void test_what_is_lacking_leaves_it_unknown(void)
{
        static const struct {
                enum backend backend;
                struct evidence evidence;
                const char *why;
        } rows[] = {
                {BACKEND_FIRECRACKER, {.exists = false}, "no such process"},
                {BACKEND_FIRECRACKER, {.exists = true, .program = "/usr/bin/firecracker"}, "looked at"},
                {BACKEND_FIRECRACKER, {.exists = true, .readable = true, .kvm_vm = true, .program = "/bin/sleep"},
                        "another program"},
                {BACKEND_QEMU, {.exists = true, .readable = true, .program = "/usr/bin/qemu-system-x86_64"},
                        "no KVM VM"},
                {BACKEND_GVISOR, {.exists = true, .readable = true, .program = "/bin/sh"}, "another program"},
                {BACKEND_RUNC, {.exists = true, .readable = true, .program = "/bin/sh"}, "host's mounts"},
                {BACKEND_OTHER, {.exists = true, .readable = true, .kvm_vm = true, .program = "/bin/x"},
                        "declares nothing"},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                struct wall w = decide(rows[i].backend, CLASS_TRUSTED, &rows[i].evidence, false);

                CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_UNKNOWN);
                CU_ASSERT_EQUAL(w.tier, TIER_UNKNOWN);
                CU_ASSERT_FALSE(w.verified);
                CU_ASSERT_PTR_NOT_NULL(strstr(w.message, rows[i].why));
        }
}

static void test_without_a_pid_nothing_is_verified(void)
{
        struct wall w = decide(BACKEND_FIRECRACKER, CLASS_TRUSTED, NULL, false);

        CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_UNKNOWN);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "no pid was given"));
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "trust_declared"));
}

static void test_declared_is_believed_where_the_operator_says_so(void)
{
        struct wall w = decide(BACKEND_FIRECRACKER, CLASS_HOSTILE, NULL, true);

        CU_ASSERT_EQUAL(w.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(w.tier, TIER_MICROVM);
        CU_ASSERT_FALSE(w.verified);
        CU_ASSERT_EQUAL(decide(BACKEND_OTHER, CLASS_TRUSTED, NULL, true).reason, REASON_ISOLATION_UNKNOWN);
}

static void test_too_weak_says_what_would_do(void)
{
        struct wall w = decide(BACKEND_GVISOR, CLASS_HOSTILE, NULL, true);

        CU_ASSERT_EQUAL(w.reason, REASON_ISOLATION_TOO_WEAK);
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "gvisor"));
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "microvm"));
        CU_ASSERT_PTR_NOT_NULL(strstr(w.message, "firecracker, cloud-hypervisor, qemu"));
}

static void test_a_real_process(void)
{
        struct evidence e;
        pid_t pid = fork();
        int pidfd = -1;

        if (pid == 0) {
                pause();
                _exit(0);
        }
        CU_ASSERT_EQUAL(evidence_gather(pid, &e, &pidfd), 0);
        CU_ASSERT_TRUE(e.exists);
        CU_ASSERT_TRUE(e.readable);
        CU_ASSERT_FALSE(e.kvm_vm);
        CU_ASSERT_FALSE(e.own_mount_namespace);
        CU_ASSERT_EQUAL(e.uid, geteuid());
        CU_ASSERT_PTR_NOT_NULL(strstr(e.program, "test_wall"));
        CU_ASSERT_TRUE(pidfd >= 0);
        close(pidfd);

        /* A zombie is no process any more, though its number is taken still. */
        kill(pid, SIGKILL);
        (void)waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
        CU_ASSERT_EQUAL(evidence_gather(pid, &e, &pidfd), 0);
        CU_ASSERT_FALSE(e.exists);
        CU_ASSERT_EQUAL(pidfd, -1);
        (void)waitpid(pid, NULL, 0);
        CU_ASSERT_EQUAL(evidence_gather(pid, &e, &pidfd), 0);
        CU_ASSERT_FALSE(e.exists);
        CU_ASSERT_EQUAL(pidfd, -1);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"evidence proves the declaration", test_evidence_proves_the_declaration},
                {"what is lacking leaves it unknown", test_what_is_lacking_leaves_it_unknown},
                {"without a pid nothing is verified", test_without_a_pid_nothing_is_verified},
                {"declared is believed where the operator says so",
                        test_declared_is_believed_where_the_operator_says_so},
                {"too weak says what would do", test_too_weak_says_what_would_do},
                {"a real process", test_a_real_process},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"wall", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
