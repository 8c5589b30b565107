/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A secret's value as an operator gives it: a file, or - for stdin. */

#include <stddef.h>

/*
 * At most WB_SECRET_MAX_BYTES. 0; or EXIT_USAGE or EXIT_FAILED, said on stderr behind `what` ("--secret"). wipe_free()
 * frees *ret.
 */
int secret_file_read(const char *what, const char *path, char **ret, size_t *ret_n);

/* The same in base64. */
int secret_file_read_base64(const char *what, const char *path, char **ret_text);

/* For a command that tells the broker secrets, before it does anything: what JSON leaves behind is wiped. */
void secret_file_wipe_json(void);
