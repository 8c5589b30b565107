/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One conversation of a command with a guest's agent, without a loop; what goes wrong is said on stderr. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "proto/client/client.h"
#include "tools/wbctl/target.h"

#define AGENT_CALL_TIMEOUT_MS 5000 /* the default for a guest to answer: it may be about to boot */

/* Connects within timeout_ms. 0; or EXIT_FAILED, said. *ret_fd is the caller's. */
int agent_call_dial(const struct target *target, uint64_t timeout_ms, int *ret_fd);

/*
 * One question over a connection of its own. 0; or EXIT_FAILED, said; also if the answer is an Error, or not of the
 * kind that is wanted. codec_free_from_agent() frees *ret.
 */
int agent_call_ask(const struct target *target, uint64_t timeout_ms, const Wb__ToAgent *question,
        Wb__FromAgent__BodyCase wanted, Wb__FromAgent **ret);

/* The same where Ok is all that is answered. */
int agent_call_tell(const struct target *target, uint64_t timeout_ms, const Wb__ToAgent *order);

/* Says what came instead of an answer: r of client_call_receive(), or an Error, or something else. Answers EXIT_FAILED.
 */
int agent_call_failed(int r, const Wb__FromAgent *m);

/* Letters, digits and _, no digit first: what can be a variable. */
bool agent_call_is_secret_name(const char *text, size_t n);

/* A step of an activation: one line for a person, one object for a machine. */
void agent_call_print_step(const Wb__ActivateStep *step);
json_t *agent_call_step_json(const Wb__ActivateStep *step);
