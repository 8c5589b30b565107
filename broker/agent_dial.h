/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection to a VM's agent, tried for as long as an agent may take to be there. */

#include <stdbool.h>
#include <stdint.h>

#include "broker/registry.h"
#include "proto/wire/transport.h"

/* Embedded in its owner; zeroed until agent_dial_init(). */
struct agent_dial {
        struct vm_entry *entry;
        void (*done)(void *userdata, int result);
        void *userdata;
        struct transport_dial dial;
        bool dialling;
        uint64_t until_ns;
        struct event *event;
};

/*
 * result is the connected descriptor, the callee's, or a negative errno: -EACCES where neither the broker's user nor
 * the socket's owner may connect. 0 or -ENOMEM.
 */
int agent_dial_init(struct agent_dial *d, struct vm_entry *e, void (*done)(void *userdata, int result), void *userdata);

/* done is called once for it, perhaps from within. The owner may go away there. */
void agent_dial_start(struct agent_dial *d);

/* done is not called any more. Idempotent; takes a zeroed one. */
void agent_dial_done(struct agent_dial *d);

/* For a person: what a negative result means. */
const char *agent_dial_fault(int result);
