/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An inherited descriptor (stdout, stderr) written to without ever blocking, and without changing its file status
 * flags: they belong to whoever else has it. What does not fit waits in memory; the exec's window bounds it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>

struct outlet;

struct outlet_handler {
        void (*written)(void *userdata, size_t n); /* n more bytes are out */
        void (*broken)(void *userdata, int error); /* nobody reads any more (-EPIPE), or it failed; once */
};

int outlet_new(
        struct event_base *base, int fd, const struct outlet_handler *handler, void *userdata, struct outlet **ret);
void outlet_free(struct outlet *o);

/* May call the handler before it returns. 0 or -ENOMEM. */
int outlet_put(struct outlet *o, const uint8_t *data, size_t n);

/* Nothing waits any more. */
bool outlet_is_empty(const struct outlet *o);
