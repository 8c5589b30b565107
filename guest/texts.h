/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Texts one behind another, a NUL behind each: an argv or an environment on its way to execve(2), in as little memory
 * as there can be. Pure. Wiped when it is freed, and where it is outgrown: there may be secrets in it.
 */

#include <stddef.h>

#include "proto/wb.pb-c.h"

/* A zeroed one is empty. */
struct texts {
        char *bytes;
        size_t used;
        size_t room;
        size_t n;
};

/* What execve(2) counts for these (WB_ARG_COST_BYTES). */
size_t texts_cost(const ProtobufCBinaryData *list, size_t n);

/* The texts have no NUL (proto/wire/codec). 0 or -ENOMEM, then nothing was added. */
int texts_add(struct texts *t, const ProtobufCBinaryData *list, size_t n);

/* for (const char *text = texts_first(&t); text; text = texts_next(&t, text)) */
const char *texts_first(const struct texts *t);
const char *texts_next(const struct texts *t, const char *text);

void texts_done(struct texts *t);
