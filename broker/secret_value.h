/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A secret's name and bytes, as they come in over the control socket. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pages of their own, left out of core dumps, wiped at the end. Zeroed: none. */
struct secret_value {
        uint8_t *bytes; /* not NULL also where n is 0 */
        size_t n;
        size_t mapped_bytes;
        bool locked; /* in memory: RLIMIT_MEMLOCK may be too small */
};

/* Letters, digits and _, no digit first: what can be a variable. */
bool secret_name_is_good(const char *name);

/* What a base64 text of text_n bytes decodes to, at most. */
size_t secret_value_room(const char *text, size_t text_n);

/* From base64, straight into its pages. 0; -EINVAL (no base64); -EMSGSIZE (above WB_SECRET_MAX_BYTES); -ENOMEM. */
int secret_value_decode(const char *text, size_t text_n, struct secret_value *ret);

/* What a negative answer of that means, for a person. */
const char *secret_value_fault(int r);

/* Idempotent; takes a zeroed one. */
void secret_value_done(struct secret_value *v);
