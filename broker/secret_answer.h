/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The answers of the control socket's secret operations (broker/control.h). */

#include <jansson.h>

#include "broker/registry.h"
#include "proto/wb.pb-c.h"

/* A put is done: the guest has it now, or will have it with its next activation. */
json_t *secret_answer_put(bool in_guest);

/* The broker keeps it, and the guest should have it now but has not. reason may be REASON_ALLOWED: none. */
json_t *secret_answer_not_given(enum reason reason, const char *why);

/* The broker keeps it no more, and the guest may still have it. */
json_t *secret_answer_not_revoked(const char *why);

json_t *secret_answer_absent(const struct vm_entry *e, const char *name);

/*
 * The kept ones, and those that the guest says it has beside them: of an activation that brought them for itself.
 * entries may be NULL: the guest has none, or was not asked because of fault (NULL: it need not be). What it says it
 * does not have is noted in the store.
 */
json_t *secret_answer_list(struct vm_entry *e, const Wb__SecretEntries *entries, const char *fault);
