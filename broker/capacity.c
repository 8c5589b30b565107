/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/capacity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define FDS_OF_THE_BROKER 128u /* loops, mailboxes, the audit, the control socket's peers, name servers */
#define FDS_OF_A_VM       6u   /* its listeners with a spare each, its pidfd, a conversation with its agent */
#define FDS_OF_A_SESSION  2u
#define BYTES_MIN         (256u * 1024u) /* a head and two buffers can be held */
#define CGROUP_FILE_BYTES 4096u

static uint64_t least(uint64_t a, uint64_t b)
{
        return a < b ? a : b;
}

static uint64_t limit_of(int resource)
{
        struct rlimit limit;

        return getrlimit((__rlimit_resource_t)resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                                                       : limit.rlim_cur;
}

/* memory.max of the cgroup that the process is in. */
static uint64_t cgroup_bytes(void)
{
        _cleanup_free_ char *own = NULL, *most = NULL;
        char path[CGROUP_FILE_BYTES + 64];
        size_t n;

        if (io_read_file("/proc/self/cgroup", CGROUP_FILE_BYTES, &own, &n) < 0)
                return UINT64_MAX;

        char *unified = strstr(own, "0::/");
        if (!unified)
                return UINT64_MAX;
        unified[strcspn(unified, "\n")] = '\0';
        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", unified + 3);
        if (io_read_file(path, 64, &most, &n) < 0)
                return UINT64_MAX;

        char *end;
        uint64_t bytes = strtoull(most, &end, 10);
        return end == most ? UINT64_MAX : bytes; /* "max" */
}

void capacity_measure(struct capacity *ret)
{
        struct sysinfo machine;

        *ret = (struct capacity){.fds = limit_of(RLIMIT_NOFILE), .bytes = least(limit_of(RLIMIT_AS), cgroup_bytes())};
        if (sysinfo(&machine) == 0)
                ret->bytes = least(ret->bytes, (uint64_t)machine.totalram * machine.mem_unit);
}

/* A quarter of the descriptors is for the relays' pipes, half of the memory for what the kernel holds for sockets. */
void capacity_divide(const struct capacity *c, size_t vms_n, size_t workers_n, struct capacity_share *ret)
{
        uint64_t pipes = c->fds / 4 / 2, taken = FDS_OF_THE_BROKER + vms_n * FDS_OF_A_VM + pipes * 2;
        uint64_t sessions = c->fds > taken ? (c->fds - taken) / FDS_OF_A_SESSION / vms_n : 0;
        uint64_t bytes = c->bytes / 2 / vms_n;

        *ret = (struct capacity_share){
                .sessions = (size_t)least(sessions ? sessions : 1, CAPACITY_SESSIONS_MAX),
                .bytes = (size_t)least(bytes > BYTES_MIN ? bytes : BYTES_MIN, CAPACITY_BYTES_MAX),
                .relay_pipes = (size_t)least(pipes / workers_n, SIZE_MAX),
        };
}
