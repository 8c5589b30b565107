/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Byte queues of a connection and the budget that they are charged to. An empty queue holds no memory, so that an idle
 * connection costs its structs alone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one VM may hold in memory. Charged before anything is allocated. */
struct budget {
        uint64_t used_bytes;
        uint64_t most_bytes;
};

bool budget_charge(struct budget *b, uint64_t n);
void budget_return(struct budget *b, uint64_t n);

struct buffer {
        struct budget *budget; /* outlives the buffer */
        uint8_t *bytes;
        size_t start; /* of the first byte that is held */
        size_t end;   /* behind the last one */
        size_t room;  /* of bytes; charged */
};

void buffer_init(struct buffer *b, struct budget *budget);
void buffer_done(struct buffer *b); /* idempotent */

static inline size_t buffer_used(const struct buffer *b)
{
        return b->end - b->start;
}

static inline const uint8_t *buffer_data(const struct buffer *b)
{
        return b->bytes ? b->bytes + b->start : (const uint8_t *)"";
}

/* Makes room for n bytes behind the end; *ret_tail points at it until the next call. 0, -ENOBUFS (the budget), -ENOMEM.
 */
int buffer_reserve(struct buffer *b, size_t n, uint8_t **ret_tail);
void buffer_commit(struct buffer *b, size_t n);

/* Gives memory back when nothing is left. */
void buffer_consume(struct buffer *b, size_t n);

int buffer_append(struct buffer *b, const void *data, size_t n);
int buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends all of from to b and empties from; no byte is copied where b is empty. Both have the same budget. */
int buffer_move(struct buffer *b, struct buffer *from);
