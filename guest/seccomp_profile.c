/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/seccomp_profile.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/socket.h>

#define X32_BIT 0x40000000u /* asm/unistd.h, __X32_SYSCALL_BIT */
#define NAMESPACES                                                                                                     \
        (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP)
#define REFUSE(error)  (SECCOMP_RET_ERRNO | (error))
#define OFFSET(member) ((uint32_t)offsetof(struct seccomp_data, member))

struct program {
        struct sock_filter *at;
        size_t n;
};

static size_t put(struct program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
        assert(p->n < SECCOMP_PROFILE_MAX); /* the tables are ours */
        p->at[p->n] = (struct sock_filter){code, jt, jf, k};
        return p->n++;
}

static void load(struct program *p, uint32_t offset)
{
        (void)put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
}

static void answer(struct program *p, uint32_t what)
{
        (void)put(p, BPF_RET | BPF_K, 0, 0, what);
}

/* If what was loaded is k: that answer. */
static void answer_if(struct program *p, uint32_t k, uint32_t what)
{
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, k);
        answer(p, what);
}

static bool holds(uint64_t caps, int cap)
{
        return caps >> cap & 1;
}

/* Of the first argument; the 64-bit ones' lower half, of which alone these calls take notice. */
static uint32_t first_argument(void)
{
        return OFFSET(args[0]) + (BYTE_ORDER == BIG_ENDIAN ? 4 : 0);
}

/* New namespaces are a way to hold every capability over code that few have looked at. */
static void refuse_namespaces(struct program *p, const struct seccomp_numbers *numbers)
{
        answer_if(p, (uint32_t)numbers->clone3,
                REFUSE(ENOSYS)); /* its flags are out of reach: libc falls back to clone */
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)numbers->clone);
        load(p, first_argument());
        (void)put(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, NAMESPACES);
        answer(p, REFUSE(EPERM));
        answer(p, SECCOMP_RET_ALLOW);
}

/* Behind vsock is the hypervisor's host, not the network. */
static void refuse_vsock(struct program *p, const struct seccomp_numbers *numbers)
{
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)numbers->socket);
        load(p, first_argument());
        (void)put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, AF_VSOCK);
        answer(p, REFUSE(EPERM));
        answer(p, SECCOMP_RET_ALLOW);
}

/* The number is loaded. */
static void add_calls(struct program *p, const struct seccomp_numbers *numbers, uint64_t caps)
{
        for (size_t i = 0; i < numbers->refused_n; i++)
                if (!holds(caps, numbers->refused[i].cap))
                        answer_if(p, (uint32_t)numbers->refused[i].number, REFUSE(EPERM));
        if (!holds(caps, CAP_SYS_ADMIN)) {
                refuse_namespaces(p, numbers);
                refuse_vsock(p, numbers);
        }
        answer(p, SECCOMP_RET_ALLOW);
}

bool seccomp_profile_refuses(uint64_t caps)
{
        const struct seccomp_numbers *numbers = &seccomp_numbers_native;

        for (size_t i = 0; i < numbers->refused_n; i++)
                if (!holds(caps, numbers->refused[i].cap))
                        return true;
        return false;
}

size_t seccomp_profile_build(uint64_t caps, struct sock_filter ret[SECCOMP_PROFILE_MAX])
{
        struct program p = {.at = ret};
        size_t native;

        load(&p, OFFSET(arch));
        native = put(&p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, seccomp_numbers_native.arch);
        (void)put(&p, BPF_JMP | BPF_JA, 0, 0, 0); /* over the native part */
        load(&p, OFFSET(nr));
#ifdef __x86_64__
        (void)put(&p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
        answer(&p, REFUSE(ENOSYS));
#endif
        add_calls(&p, &seccomp_numbers_native, caps);
        ret[native + 1].k = (uint32_t)(p.n - native - 2);
#ifdef __x86_64__
        (void)put(&p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, seccomp_numbers_i386.arch);

        answer(&p, SECCOMP_RET_KILL_PROCESS);
        load(&p, OFFSET(nr));
        add_calls(&p, &seccomp_numbers_i386, caps);
#else
        answer(&p, SECCOMP_RET_KILL_PROCESS);
#endif
        return p.n;
}
