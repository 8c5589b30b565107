/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of an image, below a descriptor of its directory: no link is followed, nothing but a regular file is read,
 * and what is read is not kept in memory.
 */

#include <stddef.h>
#include <stdint.h>

#include "tools/wbctl/image_manifest.h"

/* What stands there is not a regular file. */
#define IMAGE_DIRECTORY_E_IRREGULAR 1

/* The directory itself may be given as a link. 0 or a negative errno. */
int image_directory_open(const char *path, int *ret_fd);

/* 0, IMAGE_DIRECTORY_E_IRREGULAR, -ENOENT, or a negative errno. */
int image_directory_open_file(int dir_fd, const char *name, int *ret_fd);

/* A whole small file, as io_read_fd(). Answers the same, and -EFBIG. */
int image_directory_read(int dir_fd, const char *name, size_t max_bytes, char **ret_text, size_t *ret_n);

/*
 * Digest and size; exactly what was hashed goes to copy_fd too, if that is not negative. Answers the same; -EFBIG if
 * the file has more than most_bytes.
 */
int image_directory_hash(int dir_fd, const char *name, uint64_t most_bytes, int copy_fd,
        uint8_t ret_digest[SHA256_BYTES], uint64_t *ret_bytes);

/*
 * Calls each() for all entries but the manifest and its signature, until it answers other than 0, which is the answer
 * then. 0 or a negative errno.
 */
int image_directory_list(int dir_fd, int (*each)(void *userdata, const char *name), void *userdata);
