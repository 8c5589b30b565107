/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A seccomp profile as the OCI runtime specification writes it (config-linux.md, Seccomp), made into the program that a
 * kernel takes. Bounded and strict: what is not understood is an error, never a hole.
 */

#include <stddef.h>
#include <stdint.h>

/* 0 and the program, which the caller frees; EXIT_USAGE or EXIT_FAILED, said on stderr. */
int seccomp_file_compile(const char *path, uint8_t **ret_program, size_t *ret_n);
