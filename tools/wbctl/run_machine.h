/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The virtual machine of one run, as QEMU's command line: no network card, no disk, one vsock device. One of which a
 * snapshot can be made, or that comes from one, has memory of ours and a monitor beside that, a connection that nobody
 * else has the other end of.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/wbctl/run_image.h"

#define MACHINE_MEMORY_MIN_BYTES  (UINT64_C(96) << 20) /* the default image unpacks to 22 MB beside itself */
#define MACHINE_MEMORY_UNIT_BYTES (UINT64_C(1) << 20)
#define MACHINE_CPUS_MAX          255u /* q35 without x2APIC */

/* What a machine from a snapshot must have again. */
#define MACHINE_TYPE            "q35,sata=off,smbus=off,usb=off,vmport=off"
#define MACHINE_PROCESSOR_BYTES 49u /* the brand string of x86 (CPUID 80000002 to 80000004) and a NUL */

/* The vsock device as the monitor knows it (device_add), where it can be unplugged: QEMU saves no machine that has it.
 */
#define MACHINE_VSOCK_DRIVER  "vhost-user-vsock-pci"
#define MACHINE_VSOCK_ID      "vsock0"
#define MACHINE_VSOCK_CHARDEV "vsock"
#define MACHINE_VSOCK_BUS     "vsockport"

struct machine {
        const struct image *image; /* that it boots; NULL: it waits for its state, and for the device, by the monitor */
        uint64_t memory_bytes;
        uint64_t cpus;
        bool kvm;
        const char *vsock_path; /* where wbvsock listens for QEMU */
        const char *console_path;
        int monitor_fd; /* QEMU's end of a stream for its monitor; -1: none, and nothing can be unplugged */
        int memory_fd;  /* the memory file; -1: QEMU makes one, of which no snapshot can be made */
};

#define MACHINE_NONE ((struct machine){.monitor_fd = -1, .memory_fd = -1})

/* QEMU's argv, NULL-terminated; machine_free_argv() frees it. 0 or -ENOMEM. */
int machine_argv(const struct machine *machine, char ***ret_argv);
void machine_free_argv(char **argv);

/* The descriptors that QEMU inherits, with the same numbers. Answers how many. */
#define MACHINE_FDS_MAX 4
size_t machine_fds(const struct machine *machine, int ret_fds[MACHINE_FDS_MAX]);

/* QEMU's name for the processor that the guest sees. */
const char *machine_cpu(bool kvm);

/* This machine's processor by its own name, printable. */
void machine_processor(char ret_text[MACHINE_PROCESSOR_BYTES]);
