/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/seccomp_program.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define X32_BIT        0x40000000u /* asm/unistd.h, __X32_SYSCALL_BIT */
#define OFFSET(member) ((uint32_t)offsetof(struct seccomp_data, member))

#if defined(__x86_64__)
const uint32_t seccomp_program_arch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
const uint32_t seccomp_program_arch = AUDIT_ARCH_AARCH64;
#else
#error "which numbers has this architecture?"
#endif

static size_t put(struct seccomp_program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
        assert(p->n < SECCOMP_PROGRAM_MAX); /* the tables are ours */
        p->at[p->n] = (struct sock_filter){code, jt, jf, k};
        return p->n++;
}

static void load(struct seccomp_program *p, uint32_t offset)
{
        (void)put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
}

static void give(struct seccomp_program *p, uint32_t answer)
{
        (void)put(p, BPF_RET | BPF_K, 0, 0, answer);
}

static void load_argument(struct seccomp_program *p, unsigned argument)
{
        load(p, OFFSET(args) + 8 * argument + (BYTE_ORDER == BIG_ENDIAN ? 4 : 0));
}

struct seccomp_part seccomp_program_begin(struct seccomp_program *p, uint32_t arch)
{
        struct seccomp_part part;

        load(p, OFFSET(arch));
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, arch);
        part.jump = put(p, BPF_JMP | BPF_JA, 0, 0, 0); /* over the part; its end is not known yet */
        load(p, OFFSET(nr));
        if (arch == AUDIT_ARCH_X86_64) {
                (void)put(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
                give(p, SECCOMP_REFUSE(ENOSYS));
        }
        return part;
}

void seccomp_program_call(struct seccomp_program *p, int number, uint32_t answer)
{
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)number);
        give(p, answer);
}

static void call_with(struct seccomp_program *p, int number, unsigned argument, uint16_t test, uint32_t k,
        uint32_t answer, uint32_t otherwise)
{
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)number);
        load_argument(p, argument);
        (void)put(p, test, 0, 1, k);
        give(p, answer);
        give(p, otherwise);
}

void seccomp_program_call_with_bits(
        struct seccomp_program *p, int number, unsigned argument, uint32_t bits, uint32_t answer)
{
        call_with(p, number, argument, BPF_JMP | BPF_JSET | BPF_K, bits, answer, SECCOMP_RET_ALLOW);
}

void seccomp_program_call_with_value(
        struct seccomp_program *p, int number, unsigned argument, uint32_t value, uint32_t answer, uint32_t otherwise)
{
        call_with(p, number, argument, BPF_JMP | BPF_JEQ | BPF_K, value, answer, otherwise);
}

void seccomp_program_end(struct seccomp_program *p, struct seccomp_part part, uint32_t answer)
{
        give(p, answer);
        p->at[part.jump].k = (uint32_t)(p->n - part.jump - 1);
}

void seccomp_program_finish(struct seccomp_program *p, uint32_t answer)
{
        give(p, answer);
}

/* Of all children: a conversation over a descriptor, the clock, glibc's allocator, an end. */
static const int base_calls[] = {
#ifdef SYS_poll
        SYS_poll,
#endif
        SYS_ppoll,
        SYS_recvfrom,
        SYS_sendto,
        SYS_shutdown,
        SYS_close,
        SYS_fcntl,
        SYS_write,
        SYS_brk,
        SYS_mmap,
        SYS_munmap,
        SYS_mremap,
        SYS_madvise,
        SYS_clock_gettime,
        SYS_gettimeofday,
        SYS_futex,
        SYS_rt_sigreturn,
        SYS_rt_sigprocmask,
        SYS_restart_syscall,
        SYS_exit_group,
        SYS_getpid,
        SYS_gettid,
        SYS_tgkill,
};

int seccomp_allow_only(const int *allowed, size_t n, const struct seccomp_exception *exception, uint32_t answer)
{
        struct seccomp_program p = {.n = 0};
        struct seccomp_part part = seccomp_program_begin(&p, seccomp_program_arch);
        struct sock_fprog program;

        for (size_t i = 0; i < n; i++)
                seccomp_program_call(&p, allowed[i], SECCOMP_RET_ALLOW);
        for (size_t i = 0; i < sizeof(base_calls) / sizeof(base_calls[0]); i++)
                seccomp_program_call(&p, base_calls[i], SECCOMP_RET_ALLOW);
        seccomp_program_call_with_value(
                &p, exception->number, exception->argument, exception->value, SECCOMP_RET_ALLOW, answer);
        seccomp_program_end(&p, part, answer);
        seccomp_program_finish(&p, SECCOMP_RET_KILL_PROCESS);
        program = (struct sock_fprog){.len = (unsigned short)p.n, .filter = p.at};
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}
