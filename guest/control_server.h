/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * All conversations of the agent: accepts them, from the host alone, at most CONTROL_MAX at a time. When that many are
 * there, the oldest one that has not said anything yet makes room; if all have, the new one is closed.
 */

#include "proto/wb.pb-c.h"

#define CONTROL_MAX 256

struct agent;
struct control;
struct control_server;

/*
 * listen_fd is taken over if this succeeds. open is called with the first message of each conversation and takes it
 * over, or answers a negative errno if that message opens none.
 */
int control_server_new(struct agent *agent, int listen_fd, int (*open)(struct control *c, const Wb__ToAgent *m),
        struct control_server **ret);

/* Closes all; handlers hear closed(). Takes NULL. */
void control_server_free(struct control_server *server);
