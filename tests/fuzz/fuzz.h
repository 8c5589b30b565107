/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the fuzzers share. Each asserts properties, not only the absence of faults; the strongest is that a parser's
 * verdict depends on the bytes alone: whole, in pieces, or byte by byte.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* assert() that says what failed and can't be compiled out. */
#define MUST(property)                                                                                                 \
        do {                                                                                                           \
                if (!(property)) {                                                                                     \
                        fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #property);                         \
                        abort();                                                                                       \
                }                                                                                                      \
        } while (0)

static inline size_t min_size(size_t a, size_t b)
{
        return a < b ? a : b;
}
