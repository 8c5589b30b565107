/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_tally.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

void tally_done(struct tally *t)
{
        for (size_t i = 0; i < t->rows_n; i++)
                free(t->rows[i].name);
        free(t->rows);
        json_decref(t->index);
}

static struct tally_row *add(struct tally *t, const char *name)
{
        struct tally_row *rows;

        if (!t->index)
                t->index = json_object();
        if (t->rows_n == t->most || !t->index)
                return NULL;
        rows = reallocarray(t->rows, t->rows_n + 1, sizeof(*rows));
        if (!rows)
                return NULL;
        t->rows = rows;
        rows[t->rows_n] = (struct tally_row){.name = strdup(name)};
        if (!rows[t->rows_n].name || json_object_set_new(t->index, name, json_integer((json_int_t)t->rows_n)) < 0) {
                free(rows[t->rows_n].name);
                return NULL;
        }
        return &rows[t->rows_n++];
}

struct tally_row *tally_row(struct tally *t, const char *name)
{
        const json_t *at = json_object_get(t->index, name);
        struct tally_row *row = at ? &t->rows[json_integer_value(at)] : add(t, name);

        if (row)
                return row;
        t->others_n++;
        return &t->others;
}

static uint64_t sum(const struct tally_row *row, size_t columns_n)
{
        uint64_t n = 0;

        for (size_t i = 0; i < columns_n; i++)
                n += row->n[i];
        return n;
}

static int compare(const void *a, const void *b, void *columns_n)
{
        uint64_t x = sum(a, *(size_t *)columns_n), y = sum(b, *(size_t *)columns_n);

        return x != y ? (x < y ? 1 : -1)
                      : strcmp(((const struct tally_row *)a)->name, ((const struct tally_row *)b)->name);
}

void tally_sort(struct tally *t, size_t columns_n)
{
        if (t->rows_n)
                qsort_r(t->rows, t->rows_n, sizeof(*t->rows), compare, &columns_n);
}
