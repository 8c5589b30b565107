/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A guest that stands still: gate closed, workloads frozen, secrets wiped, connections cut; from a quiesce, or from a
 * resume that nobody announced, until the host activates. If it does not within its time, the workloads are thawed or
 * the machine is powered off (resume_judge.h): a snapshot that failed leaves nothing frozen for ever.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/resume_judge.h"

struct agent;
struct standstill_watch;

#define STANDSTILL_LIMIT_MS UINT64_C(600000) /* unless the command line says otherwise */

/* limit_ms is what the host has to come back. */
int standstill_watch_new(struct agent *agent, enum host_gone asked, uint64_t limit_ms, struct standstill_watch **ret);
void standstill_watch_free(struct standstill_watch *w); /* takes NULL */

/* From here on the guest stands still. 0, or a negative errno: the workloads could not be frozen; all else is done. */
int standstill_begin(struct standstill_watch *w, enum standstill why);

/* An activation begins: the host is there. */
void standstill_host_came(struct standstill_watch *w);

/* It went well; or it failed, in a guest that was open before or not. */
void standstill_end(struct standstill_watch *w);
void standstill_goes_on(struct standstill_watch *w, bool was_open);

enum standstill standstill_why(const struct standstill_watch *w);

/* "no", or what will be done when, for `wbctl info`. */
void standstill_describe(const struct standstill_watch *w, char *text, size_t room);
