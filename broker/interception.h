/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Interception as the main thread sees it: the CA that is in force, and which one each VM's guest was given. A VM keeps
 * the CA that it was activated with until it is activated again, so that a rotation breaks nobody's connections; one
 * without an agent keeps the one that was in force when it was added.
 */

#include <stdbool.h>

#include "broker/registry.h"

struct setup;

/* The monitor's CA becomes the one in force; anew: a new one. 0 or a negative errno, and then the one before stays. */
int interception_load_ca(struct registry *r, bool anew);

/* What the configuration wants and has: at the start and at a reload. Logs where it wants what it has not. */
void interception_configure(struct registry *r, const struct setup *setup);

/* Sets e->ca to the one that its guest is to trust: none if nothing of it may be intercepted. Whoever runs a guest
 * without an agent sees to it by himself. */
void interception_give_ca(struct vm_entry *e);

/* Logs what the VM's policy needs and the VM has not. */
void interception_warn(const struct vm_entry *e);
