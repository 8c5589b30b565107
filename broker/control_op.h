/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The operations behind the control socket: a parsed request in, an answer out, at once or later. */

#include <jansson.h>

#include "broker/registry.h"

struct control_request;

/* Called exactly once for each request; answer is taken. Builders of answers follow. */
void control_answer(struct control_request *request, json_t *answer);

json_t *answer_ok(void);
json_t *answer_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
json_t *answer_invalid(const char *text);
json_t *answer_refusal(int r, const struct refusal *refusal); /* r is -EINVAL where the request itself is wrong */

/* An optional number of milliseconds in a request; absent, 0. NULL, or what is wrong. */
const char *take_ms(const json_t *body, const char *key, uint64_t *ret);

/* Asks the monitor to read its configuration again; request is answered when that is done. */
void control_want_reload(struct control_request *request);

/* Runs the operation that body names. body stays the caller's. */
void control_operate(struct registry *registry, const json_t *body, struct control_request *request);
