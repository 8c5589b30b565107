/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the host's own /proc says of a VMM's process: facts, not yet judged (layer.h does that). The monitor gathers
 * them (evidence_gather.h), the broker judges. Plain data of a fixed size: it travels over the socket between the two.
 *
 * Each source has its own error: 0 where it could be read, else the errno (positive) of the attempt; the facts beside
 * it are meaningless then.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVIDENCE_PROGRAM_BYTES 256u
#define EVIDENCE_CGROUP_BYTES  192u
#define EVIDENCE_SHARED_MAX    64u

/* /proc/PID/status of every thread: credentials and filters are a thread's in Linux, so each is looked at. */
struct evidence_threads {
        int32_t error;
        uint32_t n;
        uint32_t filtered;            /* in seccomp mode 2 */
        uint32_t bound;               /* with no_new_privs */
        uint32_t other_uids;          /* whose user ids are not those of the first one */
        uint32_t uids[4];             /* real, effective, saved, file system, of the first */
        uint64_t capabilities;        /* effective, permitted, inheritable and ambient ones, of all threads together */
        uint64_t bounding;            /* likewise */
        bool is_gvisor_sandbox;       /* its command line is that of a runsc sandbox */
        uint32_t children;            /* of a gVisor sandbox: its descendants, ... */
        uint32_t children_unfiltered; /* ... and those with a thread that is not in seccomp mode 2 */
};

/* Its descriptors' names (virt/kvm/kvm_main.c): a VM, its vCPUs. */
struct evidence_kvm {
        int32_t error;
        uint32_t vms;
        uint32_t vcpus;
};

struct evidence_program {
        int32_t error;
        char path[EVIDENCE_PROGRAM_BYTES]; /* cut; as its own root has it, where that is another one */
        int32_t digest_error;
        uint8_t sha256[32];
};

/* Does it have its own, neither the host's nor the monitor's? */
struct evidence_own {
        int32_t error;
        bool own;
        bool host_unseen; /* the host's could not be read, so it was compared with the monitor's alone */
};

enum evidence_namespace {
        NAMESPACE_NET,
        NAMESPACE_MOUNT,
        NAMESPACE_PID,
        NAMESPACE_USER,
        NAMESPACE_MAX_,
};

enum evidence_ceiling {
        CEILING_CPU,    /* thousandths of a core */
        CEILING_MEMORY, /* bytes */
        CEILING_PIDS,   /* processes */
        CEILING_IO,     /* 1: some */
        CEILING_MAX_,
};

/* A cgroup's limits, its own or those of a cgroup above it, but not of one that the monitor is in too: that one limits
 * the host's services, not the VM. */
struct evidence_cgroup {
        int32_t error;
        char path[EVIDENCE_CGROUP_BYTES];     /* cut */
        uint64_t ceilings[CEILING_MAX_];      /* 0: none */
        int32_t ceiling_errors[CEILING_MAX_]; /* of each by itself */
};

/* A mapping that others can have too: a file's or a memfd's, by its identity. */
struct evidence_mapping {
        uint64_t device;
        uint64_t inode;
        bool writable;
};

struct evidence_memory {
        int32_t error;
        uint32_t shared_n;
        struct evidence_mapping shared[EVIDENCE_SHARED_MAX];
};

struct evidence {
        bool exists; /* false: no such process, or it ended while it was looked at; the rest is meaningless then */
        int32_t pid;
        struct evidence_threads threads;
        struct evidence_kvm kvm;
        struct evidence_program program;
        struct evidence_own root;
        struct evidence_own namespaces[NAMESPACE_MAX_];
        struct evidence_cgroup cgroup;
        struct evidence_memory memory;
};

/* Do its texts end and its counts fit? For what comes over a socket. */
bool evidence_is_sound(const struct evidence *e);

/* The first mapping that both have and at least one of the two can write to; NULL if there is none. */
const struct evidence_mapping *evidence_find_shared(const struct evidence *a, const struct evidence *b);

/* The file's name of its program, without the directories. */
const char *evidence_program_name(const struct evidence *e);
