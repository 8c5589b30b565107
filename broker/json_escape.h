/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Any bytes as the inside of a JSON string. Pure. */

#include <stddef.h>

/* A byte becomes at most this many: \u00XX, or \ufffd for one that is no UTF-8. */
#define JSON_ESCAPE_FACTOR 6u

/*
 * Writes n bytes of text at `to`, which has room for n * JSON_ESCAPE_FACTOR; answers how many it wrote. Without quotes
 * and without NUL. What is written is printable and valid UTF-8: quotes, backslashes, control characters (C0, DEL, C1)
 * and the line separators U+2028, U+2029 are escaped, each byte that is not part of well-formed UTF-8 becomes U+FFFD.
 */
size_t json_escape(char *to, const char *text, size_t n);
