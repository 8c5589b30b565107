/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The interception CA on disk: STATE_DIR/ca.pem, certificate and key, mode 0600. The monitor's: the broker's process
 * gets the text and no way to the file. */

#include <stdbool.h>
#include <stddef.h>

/*
 * The CA's text: that of the file; a new one, which is written first, where there is none or anew is wanted. A new one
 * replaces the file as a whole or not at all. 0 with *ret_text, which the caller wipes and frees; a negative errno that
 * has been logged.
 */
int ca_file_get(const char *state_dir, bool anew, char **ret_text, size_t *ret_n);
