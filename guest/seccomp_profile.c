/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/seccomp_profile.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/socket.h>

#define NAMESPACES                                                                                                     \
        (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP)

static bool holds(uint64_t caps, int cap)
{
        return caps >> cap & 1;
}

bool seccomp_profile_refuses(uint64_t caps)
{
        const struct seccomp_numbers *numbers = &seccomp_numbers_native;

        for (size_t i = 0; i < numbers->refused_n; i++)
                if (!holds(caps, numbers->refused[i].cap))
                        return true;
        return false;
}

static void add(struct seccomp_program *p, const struct seccomp_numbers *numbers, uint64_t caps)
{
        struct seccomp_part part = seccomp_program_begin(p, numbers->arch);
        const uint32_t no = SECCOMP_REFUSE(EPERM);

        for (size_t i = 0; i < numbers->refused_n; i++)
                if (!holds(caps, numbers->refused[i].cap))
                        seccomp_program_call(p, numbers->refused[i].number, no);
        if (!holds(caps, CAP_SYS_ADMIN)) {
                /* New namespaces are a way to hold every capability over code that few have looked at. clone3's flags
                 * are out of a filter's reach: libc goes on with clone. */
                seccomp_program_call(p, numbers->clone3, SECCOMP_REFUSE(ENOSYS));
                seccomp_program_call_with_bits(p, numbers->clone, 0, NAMESPACES, no);
                /* Behind vsock is the machine's host, not the network. */
                seccomp_program_call_with_value(p, numbers->socket, 0, AF_VSOCK, no, SECCOMP_RET_ALLOW);
        }
        seccomp_program_end(p, part, SECCOMP_RET_ALLOW);
}

void seccomp_profile_build(uint64_t caps, struct seccomp_program *ret)
{
        ret->n = 0;
        add(ret, &seccomp_numbers_native, caps);
#ifdef __x86_64__
        add(ret, &seccomp_numbers_i386, caps);
#endif
        seccomp_program_finish(ret, SECCOMP_RET_KILL_PROCESS);
}
