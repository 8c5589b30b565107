/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/forwarder_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/seccomp_program.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"

#define DESCRIPTORS_MAX 1200 /* two a connection, DNS over TCP, listeners */

/* The group that goes with a user here: root's sockets are often for its group alone. */
static gid_t group_of(uid_t uid)
{
        return uid == 0 ? 0 : FORWARDER_UID;
}

/* Could uid reach path in that way? Asked as uid, since the folders on the way count too. */
static bool may(uid_t uid, const char *path, int how)
{
        int r = -1;

        if (setegid(group_of(uid)) == 0 && seteuid(uid) == 0)
                r = faccessat(AT_FDCWD, path, how, AT_EACCESS);
        return seteuid(0) == 0 && setegid(0) == 0 && r == 0;
}

/* Nobody if nobody may connect; else whom the socket belongs to; root, which here has no capabilities, if not even that
 * is known. */
static uid_t choose_uid(const struct transport *t)
{
        char path[256];
        struct stat st;

        if (t->kind != TRANSPORT_UNIX || setgroups(0, NULL) < 0)
                return FORWARDER_UID;
        (void)snprintf(path, sizeof(path), "%s/%u", t->path, WB_PORT_EGRESS);
        if (stat(path, &st) < 0)
                return may(FORWARDER_UID, t->path, X_OK) ? FORWARDER_UID : 0;
        if (may(FORWARDER_UID, path, W_OK))
                return FORWARDER_UID;
        return may(st.st_uid, path, W_OK) ? st.st_uid : 0;
}

static int drop_capabilities(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static int become(uid_t uid)
{
        gid_t gid = group_of(uid);

        if (geteuid() != 0)
                return drop_capabilities();
        /* While CAP_SETPCAP is there; without it there is nothing that could come back by an exec, which the filter
         * refuses besides. */
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
                (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                return -errno;
        return drop_capabilities();
}

/* What libevent and the relaying need; a socket of the transport's family alone. */
static const int allowed[] = {
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
#endif
        SYS_epoll_pwait,
        SYS_epoll_ctl,
        SYS_epoll_pwait2,
        SYS_accept4,
        SYS_connect,
        SYS_getsockname,
        SYS_getsockopt,
        SYS_setsockopt,
};

static int filter_syscalls(int family)
{
        const struct seccomp_exception sockets = {SYS_socket, 0, (uint32_t)family};

        return seccomp_allow_only(allowed, sizeof(allowed) / sizeof(allowed[0]), &sockets, SECCOMP_RET_KILL_PROCESS);
}

int forwarder_enter_sandbox(const struct transport *t)
{
        struct rlimit descriptors = {DESCRIPTORS_MAX, DESCRIPTORS_MAX}, none = {0, 0};
        uid_t uid = geteuid() == 0 ? choose_uid(t) : geteuid();
        int r;

        (void)setrlimit(RLIMIT_NOFILE, &descriptors);
        (void)setrlimit(RLIMIT_CORE, &none);
        r = become(uid);
        if (r < 0)
                return log_errno(r, "cannot give up privileges");
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* it has no use without the agent, and holds its port */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return log_errno(-errno, "cannot protect the forwarder");
        r = filter_syscalls(t->kind == TRANSPORT_UNIX ? AF_UNIX : AF_VSOCK);
        if (r < 0)
                return log_errno(r, "cannot load the system call filter");
        return 0;
}
