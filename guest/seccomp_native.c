/* SPDX-License-Identifier: Apache-2.0 */
#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/capability.h>

#include "guest/seccomp_profile.h"

static const struct seccomp_call refused[] = {
#include "guest/seccomp_calls.inc"
};

const struct seccomp_numbers seccomp_numbers_native = {
#if defined(__x86_64__)
        .arch = AUDIT_ARCH_X86_64,
#elif defined(__aarch64__)
        .arch = AUDIT_ARCH_AARCH64,
#endif
        .refused = refused,
        .refused_n = sizeof(refused) / sizeof(refused[0]),
        .clone = __NR_clone,
        .clone3 = __NR_clone3,
        .socket = __NR_socket,
};
