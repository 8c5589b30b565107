/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the process has, and one VM's share of it: so many connections and so much memory that all VMs can have theirs
 * at once, so that none starves another.
 */

#include <stddef.h>
#include <stdint.h>

struct capacity {
        uint64_t fds;   /* RLIMIT_NOFILE */
        uint64_t bytes; /* the least of the machine's memory, the cgroup's and RLIMIT_AS */
};

struct capacity_share {
        size_t sessions;    /* connections, two descriptors each */
        size_t bytes;       /* what they may hold */
        size_t relay_pipes; /* of a worker; a relay without one copies */
};

/* Bounds of one VM however few there are, and whatever its policy. Firecracker carries 1023 connections. */
#define CAPACITY_SESSIONS_MAX 1024u
#define CAPACITY_BYTES_MAX    (64u * 1024u * 1024u)

/* What could not be read is taken for plenty. Reads /proc and the cgroup's files: before the sandbox is entered. */
void capacity_measure(struct capacity *ret);

/* The share of each of vms_n, at least 1, over workers_n. Never nothing: a process with too little has EMFILE to tell.
 */
void capacity_divide(const struct capacity *c, size_t vms_n, size_t workers_n, struct capacity_share *ret);
