/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A workload's environment: NAME=VALUE texts, the last one of a name counts. Pure. All of it is wiped when freed:
 * values may be secrets. */

#include <stddef.h>

struct environment {
        char **texts; /* NULL-terminated once environment_finish() was called */
        size_t n;
        size_t room;
};

/* Appends n bytes of text (no NUL among them). 0 or -ENOMEM. */
int environment_add(struct environment *e, const char *text, size_t n);

/* NAME=VALUE from its parts. */
int environment_set(struct environment *e, const char *name, const char *value, size_t value_n);

/* Drops what a later text of the same name replaces. 0 or -ENOMEM. */
int environment_finish(struct environment *e);

/* The value of name in a finished environment, or NULL. */
const char *environment_get(const struct environment *e, const char *name);

void environment_done(struct environment *e);
