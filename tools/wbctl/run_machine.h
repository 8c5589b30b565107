/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The virtual machine of one run, as QEMU's command line: no network card, no disk, no monitor, one vsock device. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/wbctl/run_image.h"

#define MACHINE_MEMORY_MIN_BYTES  (UINT64_C(96) << 20) /* the default image unpacks to 22 MB beside itself */
#define MACHINE_MEMORY_UNIT_BYTES (UINT64_C(1) << 20)
#define MACHINE_CPUS_MAX          255u /* q35 without x2APIC */

struct machine {
        const struct image *image;
        uint64_t memory_bytes;
        uint64_t cpus;
        bool kvm;
        const char *vsock_path; /* where wbvsock listens for QEMU */
        const char *console_path;
};

#define MACHINE_NONE ((struct machine){0})

/* The descriptors that the command line speaks of: QEMU inherits them, with the same numbers. Answers how many. */
#define MACHINE_FDS_MAX 2
size_t machine_fds(const struct machine *machine, int ret_fds[MACHINE_FDS_MAX]);

/* QEMU's argv, NULL-terminated; machine_free_argv() frees it. 0 or -ENOMEM. */
int machine_argv(const struct machine *machine, char ***ret_argv);
void machine_free_argv(char **argv);
