/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A VM that comes to be by booting an image: `wbctl run` and `wbctl snapshot create`. */

#include <stdint.h>

#include "proto/base/options.h"
#include "tools/wbctl/run_image.h"
#include "tools/wbctl/run_machine.h"

/* A command embeds this, begun with RUN_BOOT_DEFAULTS, and puts RUN_BOOT_SPECS into its table. */
struct run_boot_options {
        const char *image; /* NULL: the default one, which is built if need be */
        struct option_strings image_keys;
        uint64_t memory_bytes;
        uint64_t cpus;
};

#define RUN_BOOT_DEFAULTS                                                                                              \
        {                                                                                                              \
                .memory_bytes = UINT64_C(512) << 20, .cpus = 1                                                         \
        }

/* clang-format off */
#define RUN_BOOT_SPECS(type, member)                                                                                   \
        {"image", 0, OPTION_STRING, offsetof(type, member.image), "DIR", "a guest image; absent: the default one"},    \
        {"image-key", 0, OPTION_STRINGS, offsetof(type, member.image_keys), "PUB",                                     \
                "boot only an image signed with this key's private half (repeatable; WB_IMAGE_KEY)"},                              \
        {"memory", 0, OPTION_SIZE, offsetof(type, member.memory_bytes), "SIZE", "of the VM (512M)"},                   \
        {"cpus", 0, OPTION_U64, offsetof(type, member.cpus), "N", "of the VM (1)"}
/* clang-format on */

void run_boot_options_done(struct run_boot_options *o);

/* 0 or EXIT_USAGE, said. */
int run_boot_check(const struct run_boot_options *o, const struct option_table *table);

/* The image that was named, verified if there are keys. 0, or EXIT_FAILED, said; image_close() ends it. */
int run_boot_image(const struct run_boot_options *o, struct image *ret);

/* The machine that boots it; it points to the image. */
struct machine run_boot_machine(const struct run_boot_options *o, const struct image *image);
