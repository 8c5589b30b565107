/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The layers of a wall: what of a VMM's process stands between its guest and the host, judged from the evidence. Each
 * is present, absent or unreadable, with the fact that says so. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/evidence.h"
#include "broker/isolation.h"

/* In the order in which they are shown. */
enum layer {
        LAYER_PROGRAM,      /* runs what a backend of its kind runs, one of the operator's list if there is one */
        LAYER_KVM,          /* holds a KVM VM and a vCPU of it */
        LAYER_UID,          /* an unprivileged user that no other VM and not the broker has */
        LAYER_SECCOMP,      /* mode 2, every thread */
        LAYER_NO_NEW_PRIVS, /* every thread */
        LAYER_CAPABILITIES, /* none in any set that counts */
        LAYER_CHROOT,       /* or a pivoted root */
        LAYER_NETNS,
        LAYER_MNTNS,
        LAYER_PIDNS,
        LAYER_USERNS,
        LAYER_CGROUP, /* a ceiling on each of cpu, memory, pids, io */
        LAYER_MEMORY, /* none shared with another VM */
        LAYER_MAX_,
};

enum layer_state {
        LAYER_ABSENT,
        LAYER_PRESENT,
        LAYER_UNREADABLE,
        LAYER_STATE_MAX_,
};

struct layer_finding {
        enum layer_state state;
        char fact[EVIDENCE_PROGRAM_BYTES + 128]; /* for a person */
};

struct layers {
        struct layer_finding of[LAYER_MAX_];
};

/* Sets of layers: 1 << enum layer. */
typedef uint32_t layer_set;
#define LAYER_BIT(layer) ((layer_set)1 << (layer))

/* A program that a VMM may be; at least one of the two is there, and what is there must be equal. */
struct allowed_program {
        char *path; /* NULL: wherever it lies */
        bool has_sha256;
        uint8_t sha256[32];
};

/* Another VM, and what is known of its process. */
struct neighbour {
        const char *vm;
        const struct evidence *evidence;
        bool earlier; /* registered before the one that is judged: what both have is that one's */
};

struct layer_question {
        enum backend backend;
        const struct evidence *evidence;
        uint32_t broker_uid;
        const struct allowed_program *programs; /* none: any of the backend's kind */
        size_t programs_n;
        const struct neighbour *neighbours;
        size_t neighbours_n;
};

void layers_find(const struct layer_question *question, struct layers *ret);

/* All unreadable, with the same fact: where there is no process to look at. */
void layers_without_evidence(const char *fact, struct layers *ret);

/* Those that are in this state. */
layer_set layers_in(const struct layers *layers, enum layer_state state);

const char *layer_name(enum layer layer);
const char *layer_state_name(enum layer_state state);

/* "uid, seccomp", or "none". */
void layer_set_print(layer_set set, char *ret_text, size_t room);
