/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that a 32-bit program uses on a 64-bit kernel. Nothing here may include the native ones. */
#ifdef __x86_64__
#include <asm/unistd_32.h>
#include <linux/audit.h>
#include <linux/capability.h>

#include "guest/seccomp_profile.h"

static const struct seccomp_call refused[] = {
#include "guest/seccomp_calls.inc"
};

const struct seccomp_numbers seccomp_numbers_i386 = {
        .arch = AUDIT_ARCH_I386,
        .refused = refused,
        .refused_n = sizeof(refused) / sizeof(refused[0]),
        .clone = __NR_clone,
        .clone3 = __NR_clone3,
        .socket = __NR_socket,
};
#endif
