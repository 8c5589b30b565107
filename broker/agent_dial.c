/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/agent_dial.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/wire/limits.h"

#define LIMIT_NS (10 * NSEC_PER_SEC)
#define RETRY_MS 20

static void on_event(evutil_socket_t fd, short happened, void *userdata);

static int wait_for_socket(struct agent_dial *d, short poll_events)
{
        const struct timeval limit = {.tv_sec = (time_t)(LIMIT_NS / NSEC_PER_SEC)};
        short events = (short)((poll_events & POLLIN ? EV_READ : 0) | (poll_events & POLLOUT ? EV_WRITE : 0));

        return event_assign(d->event, d->entry->registry->base, d->dial.fd, events, on_event, d) < 0 ||
                               event_add(d->event, &limit) < 0
                       ? -ENOMEM
                       : 0;
}

static int wait_to_retry(struct agent_dial *d)
{
        const struct timeval pause = {.tv_usec = RETRY_MS * 1000};

        return event_assign(d->event, d->entry->registry->base, -1, 0, on_event, d) < 0 ||
                               event_add(d->event, &pause) < 0
                       ? -ENOMEM
                       : 0;
}

/* r: of a step of the dial. What heals is tried again until the agent has had its time. */
static void take(struct agent_dial *d, int r, short events)
{
        d->dialling = r >= 0;
        if (r == 0) {
                d->dialling = false;
                d->done(d->userdata, transport_dial_steal(&d->dial));
                return;
        }
        if (r == TRANSPORT_E_AGAIN)
                r = wait_for_socket(d, events);
        else if (transport_error_heals(r) && clock_monotonic_ns() < d->until_ns)
                r = wait_to_retry(d);
        if (r < 0)
                d->done(d->userdata, r);
}

static void attempt(struct agent_dial *d)
{
        const struct config_vm *vm = &d->entry->config;
        const struct transport t = {
                .kind = (enum transport_kind)vm->transport, .path = vm->path, .cid = (uint32_t)vm->cid};
        short events = 0;
        int r = transport_dial_start(&d->dial, &t, WB_PORT_CONTROL, &events), fd;

        /* A socket that belongs to the VMM's own user: the monitor can act as that one. */
        if (r == -EACCES && t.kind != TRANSPORT_VSOCK) {
                r = monitor_ask_dial(d->entry->registry->monitor, &t, &fd);
                if (r == 0)
                        r = transport_dial_adopt(&d->dial, &t, WB_PORT_CONTROL, fd, &events);
        }
        take(d, r, events);
}

static void on_event(evutil_socket_t fd, short happened, void *userdata)
{
        struct agent_dial *d = userdata;
        short events = 0;

        (void)fd;
        if (!d->dialling)
                attempt(d);
        else if (happened & EV_TIMEOUT)
                d->done(d->userdata, -ETIMEDOUT);
        else
                take(d, transport_dial_continue(&d->dial, &events), events);
}

int agent_dial_init(struct agent_dial *d, struct vm_entry *e, void (*done)(void *userdata, int result), void *userdata)
{
        *d = (struct agent_dial){.entry = e, .done = done, .userdata = userdata};
        d->event = event_new(e->registry->base, -1, 0, on_event, d);
        return d->event ? 0 : -ENOMEM;
}

void agent_dial_start(struct agent_dial *d)
{
        d->until_ns = clock_monotonic_ns() + LIMIT_NS;
        attempt(d);
}

void agent_dial_done(struct agent_dial *d)
{
        if (d->event)
                event_free(d->event);
        if (d->dialling)
                transport_dial_done(&d->dial);
        d->event = NULL;
        d->dialling = false;
}

const char *agent_dial_fault(int result)
{
        if (result == -EACCES)
                return "the socket is root's, and the broker's user may not connect to it: give that user access, or run the VMM as "
                       "another user";
        return strerrordesc_np(-result);
}
