/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of files in a stream (wb.proto, FileEntry), and what errors are called. Pure. */

#include <stdbool.h>
#include <stddef.h>

#define TREE_PATH_MAX  4095u /* PATH_MAX without its NUL */
#define TREE_NAME_MAX  255u
#define TREE_DEPTH_MAX 128u /* folders in each other; one descriptor each */

/*
 * Strict: "a/b", components of 1 to TREE_NAME_MAX bytes that are neither "." nor "..", no slash at either end, no NUL,
 * at most TREE_DEPTH_MAX of them. So no such name leads out of the folder that it is taken in.
 */
bool tree_name_is_good(const char *path, size_t n);

/* The word for a negative errno (FileDone's opposite: Error.reason), for scripts. */
const char *tree_error_reason(int error);
