/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/seccomp_profile.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/support/suite.h"

#define ALL    (~UINT64_C(0))
#define NATIVE seccomp_numbers_native.arch
#define EPERMS (SECCOMP_RET_ERRNO | EPERM)

/* What the kernel would do with the program: the few instructions that are in it, and a fault for all others. */
static uint32_t run(const struct sock_filter *program, size_t n, const struct seccomp_data *data)
{
        uint32_t a = 0;

        for (size_t pc = 0; pc < n; pc++) {
                const struct sock_filter *i = &program[pc];

                switch (i->code) {
                case BPF_LD | BPF_W | BPF_ABS:
                        CU_ASSERT_FATAL(i->k + 4 <= sizeof(*data));
                        memcpy(&a, (const uint8_t *)data + i->k, 4);
                        break;
                case BPF_JMP | BPF_JA: pc += i->k; break;
                case BPF_JMP | BPF_JEQ | BPF_K: pc += a == i->k ? i->jt : i->jf; break;
                case BPF_JMP | BPF_JGE | BPF_K: pc += a >= i->k ? i->jt : i->jf; break;
                case BPF_JMP | BPF_JSET | BPF_K: pc += a & i->k ? i->jt : i->jf; break;
                case BPF_RET | BPF_K: return i->k;
                default: CU_FAIL_FATAL("an instruction that this test does not know");
                }
        }
        CU_FAIL_FATAL("it runs off its end");
        return 0;
}

static uint32_t ask(uint64_t caps, uint32_t arch, int number, uint64_t argument)
{
        struct seccomp_program program;
        struct seccomp_data data = {.nr = number, .arch = arch, .args = {argument}};

        seccomp_profile_build(caps, &program);
        return run(program.at, program.n, &data);
}

static void test_each_refusal_is_lifted_by_its_capability_alone(void)
{
        const struct seccomp_numbers *numbers = &seccomp_numbers_native;

        for (size_t i = 0; i < numbers->refused_n; i++) {
                uint64_t cap = UINT64_C(1) << numbers->refused[i].cap;
                int number = numbers->refused[i].number;

                CU_ASSERT_EQUAL(ask(0, NATIVE, number, 0), EPERMS);
                CU_ASSERT_EQUAL(ask(ALL & ~cap, NATIVE, number, 0), EPERMS);
                CU_ASSERT_EQUAL(ask(cap, NATIVE, number, 0), SECCOMP_RET_ALLOW);
        }
}

static void test_all_others_pass(void)
{
        const struct seccomp_numbers *numbers = &seccomp_numbers_native;
        int refused = 0;

        for (int number = 0; number < 500; number++)
                refused += ask(0, NATIVE, number, 0) != SECCOMP_RET_ALLOW;
        CU_ASSERT_EQUAL(refused, (int)numbers->refused_n + 1); /* and clone3 */
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_execve, 0), SECCOMP_RET_ALLOW);
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_ptrace, 0), SECCOMP_RET_ALLOW); /* debuggers are no threat to others */
}

static void test_arguments(void)
{
        static const uint64_t namespaces[] = {
                CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};
        uint64_t admin = UINT64_C(1) << CAP_SYS_ADMIN;

        for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
                CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_clone, namespaces[i] | 17), EPERMS);
                CU_ASSERT_EQUAL(ask(admin, NATIVE, __NR_clone, namespaces[i] | 17), SECCOMP_RET_ALLOW);
        }
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_clone, CLONE_VM | CLONE_FS | CLONE_THREAD), SECCOMP_RET_ALLOW);
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_clone3, 0), SECCOMP_RET_ERRNO | ENOSYS);
        CU_ASSERT_EQUAL(ask(admin, NATIVE, __NR_clone3, 0), SECCOMP_RET_ALLOW);
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_socket, AF_VSOCK), EPERMS);
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_socket, AF_VSOCK | UINT64_C(1) << 32), EPERMS); /* an int is read of it */
        CU_ASSERT_EQUAL(ask(0, NATIVE, __NR_socket, AF_INET), SECCOMP_RET_ALLOW);
        CU_ASSERT_EQUAL(ask(admin, NATIVE, __NR_socket, AF_VSOCK), SECCOMP_RET_ALLOW);
}

static void test_who_holds_everything_is_refused_nothing(void)
{
        CU_ASSERT_FALSE(seccomp_profile_refuses(ALL));
        CU_ASSERT_TRUE(seccomp_profile_refuses(0));
        CU_ASSERT_TRUE(seccomp_profile_refuses(ALL & ~(UINT64_C(1) << CAP_SYS_TIME)));
}

static void test_other_architectures(void)
{
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_PPC64, __NR_execve, 0), SECCOMP_RET_KILL_PROCESS);
#ifdef __x86_64__
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_I386, 21, 0), EPERMS); /* mount */
        CU_ASSERT_EQUAL(ask(ALL & ~(UINT64_C(1) << CAP_SYS_TIME), AUDIT_ARCH_I386, 21, 0), SECCOMP_RET_ALLOW);
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_I386, 310, 0), EPERMS);                                /* unshare */
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_I386, 11, 0), SECCOMP_RET_ALLOW);                      /* execve */
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_I386, 120, CLONE_NEWUSER), EPERMS);                    /* clone */
        CU_ASSERT_EQUAL(ask(0, AUDIT_ARCH_I386, 359, AF_VSOCK), EPERMS);                         /* socket */
        CU_ASSERT_EQUAL(ask(0, NATIVE, 0x40000000 | __NR_mount, 0), SECCOMP_RET_ERRNO | ENOSYS); /* x32 */
#endif
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"each refusal is lifted by its capability alone", test_each_refusal_is_lifted_by_its_capability_alone},
                {"all others pass", test_all_others_pass},
                {"arguments", test_arguments},
                {"who holds everything is refused nothing", test_who_holds_everything_is_refused_nothing},
                {"other architectures", test_other_architectures},
                CU_TEST_INFO_NULL,
        };

        return suite_run("seccomp_profile", tests);
}
