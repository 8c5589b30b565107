/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's end of the conversation on the host's port 1026: names are put to the host's policy. The connection is
 * made when there is something to ask, and anew when it was lost.
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/transport.h"

struct event_base;
struct name_service;

/* Texts live for the call. */
struct name_verdict {
        bool allowed;
        const char *reason;
        const char *detail;
};

struct name_service_handler {
        void (*answered)(void *userdata, uint32_t number, const struct name_verdict *verdict);
        void (*lost)(void *userdata); /* of all that was asked before, nothing is answered any more */
};

/* transport, handler and userdata live as long as it does. 0 or -ENOMEM. */
int name_service_new(struct event_base *base, const struct transport *transport,
        const struct name_service_handler *handler, void *userdata, struct name_service **ret);

/*
 * Asks; the answer bears the number. 0; -ENOBUFS (too much is under way), or another negative errno: this one is not
 * asked. The handler is never called from here.
 */
int name_service_ask(struct name_service *s, uint32_t number, const char *name, uint16_t qtype);
