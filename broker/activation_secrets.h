/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Secrets on their way through the broker: from a request at the control socket into one activation. They are held for
 * that long, in locked memory that is left out of core dumps, and wiped.
 */

#include <jansson.h>

#include "proto/wb.pb-c.h"

struct activation_secrets;

/*
 * From {"NAME": "base64", ...}; NULL is none. The texts in object are wiped, also on failure. 0 (*ret is NULL for
 * none); -EINVAL with *ret_fault saying why; -ENOMEM.
 */
int activation_secrets_take(json_t *object, struct activation_secrets **ret, const char **ret_fault);
void activation_secrets_free(struct activation_secrets *s); /* takes NULL */

/* The message points into s afterwards. NULL adds none. */
void activation_secrets_fill(const struct activation_secrets *s, Wb__Activate *activate);
