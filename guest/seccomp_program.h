/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes seccomp filters, as far as the agent needs them: a list of system calls, each answered at once or by one of
 * its arguments. Straight code without far jumps: a kernel since 5.11 remembers which calls pass whatever their
 * arguments, and runs no filter for them.
 */

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#define SECCOMP_PROGRAM_MAX 512 /* instructions */

struct seccomp_program {
        struct sock_filter at[SECCOMP_PROGRAM_MAX];
        size_t n;
};

#define SECCOMP_REFUSE(error) (SECCOMP_RET_ERRNO | (error))

/* If the machine's numbers are those of arch (AUDIT_ARCH_): what follows up to seccomp_program_end(). */
struct seccomp_part {
        size_t jump;
};
struct seccomp_part seccomp_program_begin(struct seccomp_program *p, uint32_t arch);

void seccomp_program_call(struct seccomp_program *p, int number, uint32_t answer);

/* By the lower half of the argument: has it one of these bits, or is it that value? Else the call passes. */
void seccomp_program_call_with_bits(
        struct seccomp_program *p, int number, unsigned argument, uint32_t bits, uint32_t answer);
void seccomp_program_call_with_value(
        struct seccomp_program *p, int number, unsigned argument, uint32_t value, uint32_t answer, uint32_t otherwise);

/* All other calls of the part. */
void seccomp_program_end(struct seccomp_program *p, struct seccomp_part part, uint32_t answer);

/* All other machines. The program is whole then. */
void seccomp_program_finish(struct seccomp_program *p, uint32_t answer);

/* The numbers that this program was compiled for. */
extern const uint32_t seccomp_program_arch;

/*
 * For children of the agent's: allows these calls, besides those that any of them needs, and one more where its
 * argument is that value; answers all others by answer. In force when it returns 0; the caller has set no_new_privs.
 */
struct seccomp_exception {
        int number;
        unsigned argument;
        uint32_t value;
};
int seccomp_allow_only(const int *allowed, size_t n, const struct seccomp_exception *exception, uint32_t answer);
