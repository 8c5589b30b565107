/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The exchanges of times with the host over a conversation (ClockProbe, ClockSample), for an activation and for a check
 * in between. */

#include <stdint.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/clock.h"
#include "guest/control.h"

#define CLOCK_TALK_LIMIT_S 5 /* for the answer to one ClockProbe */

/* Embedded. */
struct clock_talk {
        struct control *control;
        struct clock_exchanges exchanges;
        uint32_t cookie;
        uint64_t sent_ns;
        struct event timer;
        void (*done)(void *userdata, int r, const struct clock_offset *best);
        void *userdata;
};

/*
 * done is called once for each start that answered 0, with 0 and the offset; -ETIMEDOUT (the host is late), -EBADMSG
 * (it answered another question), -ERANGE (its time is nonsense), or the negative errno of a send.
 */
void clock_talk_init(struct clock_talk *t, struct event_base *base,
        void (*done)(void *userdata, int r, const struct clock_offset *best), void *userdata);
int clock_talk_start(struct clock_talk *t, struct control *c);
void clock_talk_sample(struct clock_talk *t, const Wb__ClockSample *m);
void clock_talk_stop(struct clock_talk *t); /* done is not called any more */

/* For a person: why r. */
const char *clock_talk_fault(int r);
