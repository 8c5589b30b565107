/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Strict numbers as they stand on command lines and in files: digits only, no sign, no space, no overflow. */

#include <stddef.h>
#include <stdint.h>

/* Each: 0, or -EINVAL (not such a text), -ERANGE (outside of what is allowed). */
int parse_u64(const char *text, uint64_t most, uint64_t *ret);

/* 1 to 65535, without a leading zero (INTERFACES.md, canonical host). */
int parse_port(const char *text, size_t n, uint16_t *ret);

/* A number with ms, s, m or h: "250ms", "3s"; a plain number is refused. At most 10 years. */
int parse_duration_ms(const char *text, uint64_t *ret_ms);

/* A number with nothing, K, M or G (powers of 1024). */
int parse_size(const char *text, uint64_t *ret_bytes);

/* Octal, at most `most`: "022". */
int parse_octal(const char *text, uint32_t most, uint32_t *ret);
