/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/clock_talk.h"

#include <errno.h>
#include <string.h>

#include "proto/base/clock.h"

static void end(struct clock_talk *t, int r)
{
        clock_talk_stop(t);
        t->done(t->userdata, r, &t->exchanges.best);
}

static void on_late(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        end(userdata, -ETIMEDOUT);
}

static int ask(struct clock_talk *t)
{
        Wb__ClockProbe probe = WB__CLOCK_PROBE__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        probe.cookie = ++t->cookie;
        m.body_case = WB__FROM_AGENT__BODY_CLOCK_PROBE;
        m.clock_probe = &probe;
        (void)evtimer_add(&t->timer, &(struct timeval){.tv_sec = CLOCK_TALK_LIMIT_S});
        t->sent_ns = clock_monotonic_ns();
        return control_send(t->control, &m);
}

void clock_talk_init(struct clock_talk *t, struct event_base *base,
        void (*done)(void *userdata, int r, const struct clock_offset *best), void *userdata)
{
        *t = (struct clock_talk){.done = done, .userdata = userdata};
        (void)evtimer_assign(&t->timer, base, on_late, t);
}

int clock_talk_start(struct clock_talk *t, struct control *c)
{
        t->control = c;
        t->exchanges = (struct clock_exchanges){0};
        return ask(t);
}

/* Both of the guest's clocks are read when the answer is here; later than it came only makes the bound larger, and so
 * true. */
void clock_talk_sample(struct clock_talk *t, const Wb__ClockSample *m)
{
        uint64_t guest_ns = clock_realtime_ns(), received_ns = clock_monotonic_ns();
        int r = -EBADMSG;

        if (m->cookie == t->cookie)
                r = clock_exchange_add(&t->exchanges, t->sent_ns, received_ns, guest_ns, m->realtime_ns);
        if (r == 0 && t->exchanges.done < CLOCK_EXCHANGES)
                r = ask(t);
        else if (r == 0) {
                end(t, 0);
                return;
        }
        if (r < 0)
                end(t, r);
}

void clock_talk_stop(struct clock_talk *t)
{
        (void)evtimer_del(&t->timer);
        t->control = NULL;
}

const char *clock_talk_fault(int r)
{
        switch (r) {
        case -ETIMEDOUT: return "the host did not answer a clock probe within 5 s";
        case -EBADMSG: return "the host answered another clock probe than was asked";
        case -ERANGE: return "the host's time is not of this age";
        default: return "the host cannot be asked for the time";
        }
}
