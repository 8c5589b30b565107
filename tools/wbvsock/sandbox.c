/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"

/* Sanitizers make calls of their own (threads, ptrace at exit), so their builds go without the filter. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_FILTER 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_FILTER 0
#endif
#endif
#ifndef HAS_FILTER
#define HAS_FILTER 1
#endif

DEFINE_CLEANUP(scmp_filter_ctx, seccomp_release);

static const int allowed[] = {
        /* sockets and eventfds */
        SCMP_SYS(read),
        SCMP_SYS(readv),
        SCMP_SYS(write),
        SCMP_SYS(writev),
        SCMP_SYS(recvfrom),
        SCMP_SYS(recvmsg),
        SCMP_SYS(sendto),
        SCMP_SYS(sendmsg),
        SCMP_SYS(accept4),
        SCMP_SYS(connect),
        SCMP_SYS(shutdown),
        SCMP_SYS(close),
        SCMP_SYS(poll),
        SCMP_SYS(ppoll),
        SCMP_SYS(fcntl),
        /* the loop */
        SCMP_SYS(epoll_ctl),
        SCMP_SYS(epoll_wait),
        SCMP_SYS(epoll_pwait),
        SCMP_SYS(epoll_pwait2),
        SCMP_SYS(clock_gettime),
        SCMP_SYS(gettimeofday),
        SCMP_SYS(rt_sigreturn),
        SCMP_SYS(rt_sigaction),
        SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(restart_syscall),
        /* memory; mmap and mprotect are restricted below */
        SCMP_SYS(brk),
        SCMP_SYS(munmap),
        SCMP_SYS(mremap),
        SCMP_SYS(madvise),
        SCMP_SYS(fstat),
        SCMP_SYS(newfstatat),
        SCMP_SYS(futex),
        SCMP_SYS(getrandom),
        /* the end: the sockets' names, and abort() */
        SCMP_SYS(unlink),
        SCMP_SYS(unlinkat),
        SCMP_SYS(getpid),
        SCMP_SYS(gettid),
        SCMP_SYS(tgkill),
        SCMP_SYS(exit),
        SCMP_SYS(exit_group),
};

/* No socket but a local one, and no memory becomes code. */
static const struct restricted {
        int call;
        struct scmp_arg_cmp argument;
} restricted[] = {
        {SCMP_SYS(socket), {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = AF_UNIX}},
        {SCMP_SYS(mmap), {.arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0}},
        {SCMP_SYS(mprotect), {.arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0}},
};

static int add_rules(scmp_filter_ctx filter)
{
        int r = 0;

        for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed) && r == 0; i++)
                r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
        for (size_t i = 0; i < sizeof(restricted) / sizeof(*restricted) && r == 0; i++)
                r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, restricted[i].call, 1, &restricted[i].argument);
        return r;
}

static int load_filter(void)
{
        _cleanup_(seccomp_releasep) scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
        int r;

        if (!filter)
                return -ENOMEM;
        r = add_rules(filter);
        return r < 0 ? r : seccomp_load(filter);
}

int sandbox_enter(void)
{
        int r;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return log_errno(-errno, "cannot give up new privileges");
        if (!HAS_FILTER)
                return 0;
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return log_errno(-errno, "cannot forbid dumps");
        r = load_filter();
        return r < 0 ? log_errno(r, "cannot load the filter of system calls") : 0;
}

int sandbox_die_with_parent(int parent)
{
        if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0)
                return -errno;
        return getppid() == parent ? 0 : -ESRCH;
}
