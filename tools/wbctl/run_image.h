/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Guest images (images/README.md): a directory with kernel, initrd and cmdline. The default one is built from this
 * machine's distribution by images/microvm/build, which keeps it in a cache and is asked each time.
 */

#include <stddef.h>

#include "tools/wbctl/image_keys.h"

#define IMAGE_CMDLINE_MAX_BYTES 2048u /* COMMAND_LINE_SIZE of x86 (asm/setup.h) */

struct image {
        char *directory;
        char *cmdline; /* without the newline */
        int kernel_fd;
        int initrd_fd;
};

#define IMAGE_NONE ((struct image){.kernel_fd = -1, .initrd_fd = -1})

/*
 * Opens the image in a directory. 0, or a negative errno with the reason on stderr; *ret is for image_close() after 0
 * only.
 */
int image_open(const char *directory, struct image *ret);

/*
 * The same for an image that is what the owner of one of the keys signed, and for no other. Its descriptors are sealed
 * copies of what was verified: whatever becomes of the files, nothing else boots.
 */
int image_open_verified(const char *directory, const struct image_keys *keys, struct image *ret);
void image_close(struct image *image);

/*
 * Runs images/microvm/build with arguments (NULL-terminated; the agent beside wbctl is added to them). Its progress
 * goes to stderr, the path it prints to *ret_directory, which the caller frees. 0, or a negative errno with the reason
 * on stderr.
 */
int image_build(const char *const *arguments, char **ret_directory);

/* Where images/microvm/build keeps the images it built: the caller frees it. 0 or -ENOMEM. */
int image_cache(char **ret_directory);

/*
 * The program that stands beside wbctl, or its bare name for a search along PATH. The caller frees it. 0 or a negative
 * errno.
 */
int image_sibling(const char *name, char **ret_path);
