/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Connections of the host to a port of the guest's loopback: a conversation each, both directions with credit. */

#include "guest/control.h"

struct forwards;

#define FORWARDS_MAX            128 /* at a time: each may hold twice its window */
#define FORWARD_WINDOW_BYTES    (256u * 1024u)
#define FORWARD_CONNECT_LIMIT_S 10

int forwards_new(struct agent *agent, struct forwards **ret);
void forwards_free(struct forwards *forwards); /* takes NULL */

/* The opening message of a conversation: connects, then says ForwardReady, or Error ("refused", ...). */
void forward_open(struct forwards *forwards, struct control *c, const Wb__Forward *m);

/* Ends all of them. */
void forwards_stop(struct forwards *forwards);
