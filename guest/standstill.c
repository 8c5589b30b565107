/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/standstill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/exec.h"
#include "guest/files.h"
#include "guest/filesystems_hold.h"
#include "guest/forward.h"
#include "guest/network.h"
#include "guest/sentinel.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

struct standstill_watch {
        struct agent *agent;
        enum host_gone asked;
        uint64_t limit_ms;
        enum standstill why;
        struct event timer;
        uint64_t deadline_ns; /* of the timer, where it runs */
};

static void thaw(struct standstill_watch *w)
{
        unsigned n = filesystems_release(w->agent);
        int r = exec_table_thaw(w->agent->execs);

        w->why = STANDSTILL_NONE;
        if (r < 0 && r != -EOPNOTSUPP)
                (void)log_errno(r, "cannot thaw the workloads");
        log_warning("the host did not come back: workloads run again, the gate stays closed; %u filesystems thawed", n);
}

static void on_timer(evutil_socket_t fd, short events, void *userdata)
{
        struct standstill_watch *w = userdata;

        (void)fd;
        (void)events;
        if (host_gone_action(w->asked, w->why) == HOST_GONE_THAW) {
                thaw(w);
                return;
        }
        log_warning("the host did not come back: powering off");
        agent_end_soon(w->agent, AGENT_END_POWER_OFF);
}

static void wait_for_host(struct standstill_watch *w)
{
        struct timeval limit = {
                .tv_sec = (time_t)(w->limit_ms / MSEC_PER_SEC),
                .tv_usec = (suseconds_t)(w->limit_ms % MSEC_PER_SEC) * 1000,
        };

        (void)evtimer_del(&w->timer);
        if (host_gone_action(w->asked, w->why) == HOST_GONE_STAY)
                return;
        w->deadline_ns = clock_monotonic_ns() + w->limit_ms * NSEC_PER_MSEC;
        (void)evtimer_add(&w->timer, &limit);
}

int standstill_watch_new(struct agent *agent, enum host_gone asked, uint64_t limit_ms, struct standstill_watch **ret)
{
        struct standstill_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->agent = agent;
        w->asked = asked;
        w->limit_ms = limit_ms;
        (void)evtimer_assign(&w->timer, agent->base, on_timer, w);
        *ret = w;
        return 0;
}

void standstill_watch_free(struct standstill_watch *w)
{
        if (!w)
                return;
        (void)evtimer_del(&w->timer);
        free(w);
}

int standstill_begin(struct standstill_watch *w, enum standstill why)
{
        struct agent *agent = w->agent;
        int r;

        w->why = why;
        wait_for_host(w);
        gate_set(&agent->gate, GATE_CLOSED);
        r = exec_table_freeze(agent->execs);
        agent_set_secrets(agent, NULL);
        sentinel_withdraw(agent->sentinel);
        network_stop(agent->network);
        forwards_stop(agent->forwards);
        files_stop(agent->files);
        return r == -EOPNOTSUPP ? 0 : r;
}

void standstill_host_came(struct standstill_watch *w)
{
        (void)evtimer_del(&w->timer);
}

void standstill_end(struct standstill_watch *w)
{
        w->why = STANDSTILL_NONE;
}

/* What an activation had been about to put in order may have been resumed. */
void standstill_goes_on(struct standstill_watch *w, bool was_open)
{
        if (was_open)
                w->why = STANDSTILL_RESUMED;
        wait_for_host(w);
}

enum standstill standstill_why(const struct standstill_watch *w)
{
        return w->why;
}

void standstill_describe(const struct standstill_watch *w, char *text, size_t room)
{
        uint64_t now_ns = clock_monotonic_ns();
        const char *why = w->why == STANDSTILL_QUIESCED ? "quiesced" : "resumed";

        if (w->why == STANDSTILL_NONE)
                (void)snprintf(text, room, "no");
        else if (!evtimer_pending(&w->timer, NULL))
                (void)snprintf(text, room, "%s, until the host activates", why);
        else
                (void)snprintf(text, room, "%s; %s in %" PRIu64 " s", why,
                        host_gone_name(host_gone_action(w->asked, w->why)),
                        w->deadline_ns > now_ns ? (w->deadline_ns - now_ns) / NSEC_PER_SEC : 0);
}
