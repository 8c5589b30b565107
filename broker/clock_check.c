/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/clock_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "broker/agent_dial.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/client/client.h"

#define LIMIT_S 30 /* for one */

struct clock_keeper {
        struct registry *registry;
        struct event *tick;
};

struct clock_check {
        struct vm_entry *entry;
        struct agent_dial dial;
        struct client *client;
        struct event *limit;
};

static void check_free(struct clock_check *k)
{
        if (!k)
                return;
        k->entry->clock_check = NULL;
        agent_dial_done(&k->dial);
        if (k->limit)
                event_free(k->limit);
        client_free(k->client);
        free(k);
}

/* A guest without a right clock still works: said now and then in the log, and no more done about it. */
static void give_up(struct clock_check *k, const char *why)
{
        log_debug("VM '%s': its clock was not checked: %s", k->entry->config.name, why);
        check_free(k);
}

static void on_limit(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        give_up(userdata, "the agent did not finish in time");
}

static void take_report(struct clock_check *k, const Wb__ClockReport *report)
{
        bool is_odd = strcmp(report->action, "stepped") == 0 || strcmp(report->action, "failed") == 0;

        log_write(is_odd ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG,
                "VM '%s': its clock was off by %" PRId64 " us within %" PRIu64 " us: %s", k->entry->config.name,
                report->offset_ns / (int64_t)NSEC_PER_USEC, report->bound_ns / NSEC_PER_USEC + 1, report->action);
        check_free(k);
}

static void answer_probe(struct clock_check *k, const Wb__ClockProbe *probe)
{
        Wb__ClockSample sample = WB__CLOCK_SAMPLE__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        sample.cookie = probe->cookie;
        sample.realtime_ns = clock_realtime_ns();
        m.body_case = WB__TO_AGENT__BODY_CLOCK_SAMPLE;
        m.clock_sample = &sample;
        if (client_send(k->client, &m) < 0)
                give_up(k, "its probe cannot be answered");
}

static void on_message(void *userdata, const Wb__FromAgent *m)
{
        struct clock_check *k = userdata;

        if (m->body_case == WB__FROM_AGENT__BODY_CLOCK_PROBE)
                answer_probe(k, m->clock_probe);
        else if (m->body_case == WB__FROM_AGENT__BODY_CLOCK_REPORT)
                take_report(k, m->clock_report);
        else
                give_up(k, m->body_case == WB__FROM_AGENT__BODY_ERROR ? m->error->reason : "it answers something else");
}

static void on_closed(void *userdata, int error)
{
        (void)error;
        give_up(userdata, "the agent closed the conversation");
}

static void on_dialled(void *userdata, int result)
{
        static const struct client_handler handler = {.message = on_message, .closed = on_closed};
        struct clock_check *k = userdata;
        Wb__ClockCheck check = WB__CLOCK_CHECK__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        if (result < 0) {
                give_up(k, agent_dial_fault(result));
                return;
        }
        m.body_case = WB__TO_AGENT__BODY_CLOCK_CHECK;
        m.clock_check = &check;
        if (client_new(k->entry->registry->base, result, &handler, k, &k->client) < 0 || client_send(k->client, &m) < 0)
                give_up(k, "no memory");
}

void clock_check_start(struct vm_entry *e)
{
        struct clock_check *k;

        if (e->clock_check)
                return;
        k = calloc(1, sizeof(*k));
        if (!k)
                return;
        k->entry = e;
        e->clock_check = k;
        k->limit = evtimer_new(e->registry->base, on_limit, k);
        if (!k->limit || agent_dial_init(&k->dial, e, on_dialled, k) < 0) {
                check_free(k);
                return;
        }
        (void)evtimer_add(k->limit, &(struct timeval){.tv_sec = LIMIT_S});
        agent_dial_start(&k->dial);
}

void clock_check_cancel(struct vm_entry *e)
{
        check_free(e->clock_check);
}

/* ---- all of them */

static bool is_wanted(const struct vm_entry *e)
{
        return e->state == VM_OPEN && e->config.agent && e->config.transport != TRANSPORT_UNIX && !e->conversation;
}

/* The period may be another after a reload. */
static int wait(struct clock_keeper *k)
{
        return event_add(k->tick, &(struct timeval){.tv_sec = (time_t)k->registry->clock_check_s}) < 0 ? -ENOMEM : 0;
}

static void on_tick(evutil_socket_t fd, short events, void *userdata)
{
        struct clock_keeper *k = userdata;
        struct vm_entry *e;

        (void)fd;
        (void)events;
        TAILQ_FOREACH (e, &k->registry->vms, link)
                if (is_wanted(e))
                        clock_check_start(e);
        (void)wait(k);
}

int clock_keeper_new(struct registry *registry, struct clock_keeper **ret)
{
        struct clock_keeper *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        k->registry = registry;
        k->tick = evtimer_new(registry->base, on_tick, k);
        if (!k->tick || wait(k) < 0) {
                clock_keeper_free(k);
                return -ENOMEM;
        }
        *ret = k;
        return 0;
}

void clock_keeper_free(struct clock_keeper *k)
{
        if (!k)
                return;
        if (k->tick)
                event_free(k->tick);
        free(k);
}
