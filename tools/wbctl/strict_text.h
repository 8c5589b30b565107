/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reading text that has one form only. Pure. What is to come is taken off the front, or, if it is not what comes,
 * nothing is and the answer is false.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/sha256.h"

struct strict_text {
        const char *at;
        const char *end;
};

size_t strict_text_left(const struct strict_text *t);

bool strict_text_take(struct strict_text *t, const char *text);

/* As many such characters as come, at least one and fewer than room; with a NUL behind them. */
bool strict_text_take_chars(struct strict_text *t, bool (*is_char)(char), char *ret, size_t room);

/* Decimal, no zero before another digit. most is at least 9. */
bool strict_text_take_number(struct strict_text *t, uint64_t least, uint64_t most, uint64_t *ret);

bool strict_text_take_digest(struct strict_text *t, uint8_t ret[SHA256_BYTES]);
