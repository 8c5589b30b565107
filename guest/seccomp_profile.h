/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The default profile of an exec, of the container kind: a seccomp filter that refuses with EPERM what a command
 * without the capability for it has no use for. A command that holds all capabilities is refused nothing. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/seccomp_program.h"

/* caps: bit n is capability n that the command holds. Is anything refused then? */
bool seccomp_profile_refuses(uint64_t caps);

void seccomp_profile_build(uint64_t caps, struct seccomp_program *ret);

/* The numbers of one architecture. */
struct seccomp_call {
        int number;
        int cap;
};
struct seccomp_numbers {
        uint32_t arch; /* AUDIT_ARCH_ of linux/audit.h */
        const struct seccomp_call *refused;
        size_t refused_n;
        int clone, clone3, socket;
};
extern const struct seccomp_numbers seccomp_numbers_native;
#ifdef __x86_64__
extern const struct seccomp_numbers seccomp_numbers_i386;
#endif
