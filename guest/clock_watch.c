/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/clock_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/clock_talk.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

#define CHECK_S 60

struct clock_watch {
        struct agent *agent;
        bool is_ours;
        struct event tick;
        struct clock_talk talk;
        struct control *control; /* of the ClockCheck that runs now; NULL: none */

        struct clock_mark mark;
        struct clock_finding last;
        int error; /* of setting it, the last time */
        char source[CLOCK_PTP_NAME_BYTES + 16];
        uint64_t checked_ns; /* 0: never */
};

/* What the kernel has still to slew. */
static int64_t left_to_slew_ns(void)
{
        struct timex t = {.modes = ADJ_OFFSET_SS_READ};

        return adjtimex(&t) < 0 ? 0 : (int64_t)t.offset * (int64_t)NSEC_PER_USEC;
}

static int slew(int64_t offset_ns)
{
        struct timex t = {.modes = ADJ_OFFSET_SINGLESHOT, .offset = (long)(offset_ns / (int64_t)NSEC_PER_USEC)};

        return adjtimex(&t) < 0 ? -errno : 0;
}

static void take_offset(struct clock_watch *w, const struct clock_offset *offset, const char *source)
{
        uint64_t now_ns = clock_monotonic_ns();

        w->last = clock_find(&w->mark, offset, w->is_ours ? left_to_slew_ns() : 0, now_ns);
        (void)snprintf(w->source, sizeof(w->source), "%s", source);
        w->checked_ns = now_ns;
        w->error = 0;
        if (!w->is_ours)
                w->last.action = CLOCK_LEAVE;
        else if (w->last.action == CLOCK_SLEW)
                w->error = slew(offset->offset_ns);
        else if (w->last.action == CLOCK_STEP)
                w->error = clock_step(offset->offset_ns);
        if (w->error < 0)
                (void)log_errno(w->error, "cannot correct the clock");
        w->mark = clock_mark_after(w->error < 0 ? CLOCK_LEAVE : w->last.action, offset, now_ns);
}

/* By the better source. False: it is not there. */
static bool check_by_ptp(struct clock_watch *w)
{
        char name[CLOCK_PTP_NAME_BYTES], source[CLOCK_PTP_NAME_BYTES + 16];
        struct clock_offset offset;

        if (!w->is_ours || clock_read_ptp(&offset, name) != 0)
                return false;
        (void)snprintf(source, sizeof(source), "ptp_kvm %s", name);
        take_offset(w, &offset, source);
        return true;
}

static void on_tick(evutil_socket_t fd, short events, void *userdata)
{
        struct clock_watch *w = userdata;

        (void)fd;
        (void)events;
        /* What comes before an activation is the activation's to put right. */
        if (gate_is_open(&w->agent->gate))
                (void)check_by_ptp(w);
}

/* ---- the host's check */

static void send_report(struct clock_watch *w, struct control *c)
{
        Wb__ClockReport report = WB__CLOCK_REPORT__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        report.action = (char *)(uintptr_t)(w->error < 0 ? "failed" : clock_action_name(w->last.action));
        report.source = w->source;
        report.offset_ns = w->last.offset.offset_ns;
        report.bound_ns = w->last.offset.bound_ns;
        report.drift_known = w->last.drift_known;
        report.drift_ppb = w->last.drift_ppb;
        report.drift_bound_ppb = w->last.drift_bound_ppb;
        m.body_case = WB__FROM_AGENT__BODY_CLOCK_REPORT;
        m.clock_report = &report;
        (void)control_send(c, &m);
        control_finish(c);
}

static void on_measured(void *userdata, int r, const struct clock_offset *best)
{
        struct clock_watch *w = userdata;
        struct control *c = w->control;

        w->control = NULL;
        if (r < 0) {
                (void)control_send_error(c, "clock", clock_talk_fault(r));
                control_finish(c);
                return;
        }
        take_offset(w, best, "exchanges");
        send_report(w, c);
}

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct clock_watch *w = userdata;
        struct control *c = w->control;

        if (m->body_case == WB__TO_AGENT__BODY_CLOCK_SAMPLE) {
                clock_talk_sample(&w->talk, m->clock_sample);
                return;
        }
        clock_talk_stop(&w->talk);
        w->control = NULL;
        (void)control_send_error(c, "protocol", "a ClockSample was asked for");
        control_finish(c);
}

static void on_closed(void *userdata)
{
        struct clock_watch *w = userdata;

        clock_talk_stop(&w->talk);
        w->control = NULL;
}

void clock_watch_open(struct clock_watch *w, struct control *c)
{
        static const struct control_handler handler = {.message = on_message, .closed = on_closed};
        int r;

        if (w->control || w->agent->activation) {
                (void)control_send_error(c, "busy", "the clock is being looked at");
                control_finish(c);
                return;
        }
        if (check_by_ptp(w)) {
                send_report(w, c);
                return;
        }
        w->control = c;
        control_set_handler(c, &handler, w);
        r = clock_talk_start(&w->talk, c);
        if (r == 0)
                return;
        w->control = NULL;
        clock_talk_stop(&w->talk);
        control_finish(c);
}

/* ---- life */

int clock_watch_new(struct agent *agent, struct clock_watch **ret)
{
        struct clock_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->agent = agent;
        w->is_ours = agent->transport.kind != TRANSPORT_UNIX;
        clock_talk_init(&w->talk, agent->base, on_measured, w);
        (void)event_assign(&w->tick, agent->base, -1, EV_PERSIST, on_tick, w);
        if (w->is_ours && clock_has_ptp())
                (void)event_add(&w->tick, &(struct timeval){.tv_sec = CHECK_S});
        *ret = w;
        return 0;
}

void clock_watch_free(struct clock_watch *w)
{
        if (!w)
                return;
        clock_talk_stop(&w->talk);
        (void)event_del(&w->tick);
        free(w);
}

void clock_watch_begin(struct clock_watch *w, const struct clock_offset *offset)
{
        w->mark = clock_mark_after(CLOCK_STEP, offset, clock_monotonic_ns());
        w->checked_ns = 0;
}

void clock_watch_describe(const struct clock_watch *w, char *text, size_t room)
{
        const struct clock_finding *f = &w->last;
        size_t n;

        if (!w->checked_ns) {
                (void)snprintf(text, room, "not checked since the activation");
                return;
        }
        (void)snprintf(text, room, "%s, off by %" PRId64 " us within %" PRIu64 " us (%s), %" PRIu64 " s ago",
                w->error < 0 ? "failed" : clock_action_name(f->action), f->offset.offset_ns / (int64_t)NSEC_PER_USEC,
                f->offset.bound_ns / NSEC_PER_USEC + 1, w->source,
                (clock_monotonic_ns() - w->checked_ns) / NSEC_PER_SEC);
        n = strlen(text);
        if (f->drift_known && n < room)
                (void)snprintf(text + n, room - n, "; drift %" PRId64 " ppb within %" PRIu64, f->drift_ppb,
                        f->drift_bound_ppb);
}
