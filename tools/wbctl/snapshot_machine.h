/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The file `machine` of a snapshot: what must be there again, for the snapshot's state to mean the same. Pure. It is
 * plain text, one form only, each line once and in this order:
 *
 *     wb-snapshot 1
 *     qemu 7.2.22 (Debian 1:7.2+dfsg-7)
 *     machine q35,...
 *     accel tcg                            or kvm
 *     cpu max
 *     processor NAME                       the host's
 *     cpus 1
 *     memory BYTES                         whole MiB; the size of the file `memory`
 *     kernel SHA256                        what was booted: where the snapshot comes from,
 *     initrd SHA256                        for who wants to know; a restore needs none of it
 *     cmdline SHA256
 *     state BYTES SHA256                   of the file `state`
 *     check SHA256                         of all lines above
 *
 * The last line finds a damaged or edited file. It is no signature: whoever can write the directory can write it too.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/sha256.h"

#define SNAPSHOT_MACHINE_FILE       "machine"
#define SNAPSHOT_MACHINE_TEXT_BYTES 129u /* of a text: at most 128 and a NUL */
#define SNAPSHOT_MACHINE_MAX_BYTES  2048u
#define SNAPSHOT_MEMORY_MAX_BYTES   (UINT64_C(1) << 42)
#define SNAPSHOT_STATE_MAX_BYTES    (UINT64_C(64) << 20) /* without memory it is some 300 KiB */

/* snapshot_machine_parse(): it is no such text. */
#define SNAPSHOT_MACHINE_E_INVALID 1

struct snapshot_machine {
        char qemu[SNAPSHOT_MACHINE_TEXT_BYTES];
        char machine[SNAPSHOT_MACHINE_TEXT_BYTES];
        bool kvm;
        char cpu[SNAPSHOT_MACHINE_TEXT_BYTES];
        char processor[SNAPSHOT_MACHINE_TEXT_BYTES];
        uint64_t cpus;
        uint64_t memory_bytes;
        uint8_t kernel[SHA256_BYTES];
        uint8_t initrd[SHA256_BYTES];
        uint8_t cmdline[SHA256_BYTES];
        uint64_t state_bytes;
        uint8_t state[SHA256_BYTES];
};

struct snapshot_machine_error {
        size_t line; /* from 1 */
        const char *reason;
};

/* 0, SNAPSHOT_MACHINE_E_INVALID with *ret_error, or -ENOTSUP (there is no SHA-256). */
int snapshot_machine_parse(
        const char *text, size_t n, struct snapshot_machine *ret, struct snapshot_machine_error *ret_error);

/* Printable ASCII, 1 to 128 of it, no space at either end. */
bool snapshot_machine_is_text(const char *text);

/* 0 with the bytes written, without a NUL; or -ENOTSUP. What is in m is what parse would accept. */
int snapshot_machine_format(const struct snapshot_machine *m, char ret_text[SNAPSHOT_MACHINE_MAX_BYTES], size_t *ret_n);
