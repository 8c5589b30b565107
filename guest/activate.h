/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Activation: one transaction for boot and resume. While it runs the gate is closed and workloads are frozen; each step
 * reports its evidence to the host as it ends; the first that fails leaves the gate closed, the workloads frozen, the
 * secrets wiped, and is named.
 */

#include "guest/activation.h"
#include "guest/control.h"

struct agent;

/* Called for the opening message; the activation takes the conversation over. */
void activate_open(struct agent *agent, struct control *c, const Wb__Activate *m);
void activate_quiesce(struct agent *agent, struct control *c);

/* Ends the activation that runs, if one does, as failed; why is for a person. */
void activate_abort(struct agent *agent, const char *why);
