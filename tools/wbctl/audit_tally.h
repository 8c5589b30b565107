/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts by name, in bounded memory: names beyond the bound are counted together. Pure. */

#include <stddef.h>
#include <stdint.h>

#define TALLY_COLUMNS 6u

struct tally_row {
        char *name;
        uint64_t n[TALLY_COLUMNS];
};

struct tally {
        struct json_t *index; /* a name's place in rows */
        struct tally_row *rows;
        size_t rows_n;
        size_t most;
        struct tally_row others;
        uint64_t others_n; /* counts, not names */
};

/* Zeroed, and most set, it is empty. */
void tally_done(struct tally *tally);

/* The row of a name, that of all others where there is no room for it. Until the next call. */
struct tally_row *tally_row(struct tally *tally, const char *name);

/* By the sum of all columns up to columns_n, the greatest first; then tally_row() is not to be called any more. */
void tally_sort(struct tally *tally, size_t columns_n);
