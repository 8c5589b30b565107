/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes connections, a VM's or the control socket's, as fast as they come, since a full backlog stalls a VMM, but a
 * bounded number in one turn of the loop, so that the other VMs have theirs. Without descriptors left a spare one is
 * given up to answer with a close, and accepting pauses for a moment.
 */

#include <event2/event.h>

struct listener;

struct listener_calls {
        void (*accept)(void *userdata, int fd); /* takes the connection, non-blocking */
        void (*starved)(void *userdata);        /* no descriptor or memory is left; may be NULL */
};

/* Owns fd, a listening non-blocking socket, when it answers 0; calls is copied. */
int listener_new(
        struct event_base *base, int fd, const struct listener_calls *calls, void *userdata, struct listener **ret);
void listener_free(struct listener *l); /* takes NULL */
