/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A conversation with the agent, from the host's bytes: frames, their messages, what is opened and how it ends. The
 * input's first byte says how whoever runs the conversation behaves and where the input is cut into two writes. What
 * messages do (activation, execs) is not here: it would be done to this machine.
 */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "guest/agent.h"
#include "guest/control.h"
#include "guest/control_pool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct owner {
        struct control *control;
        unsigned closed;
        uint8_t how;
};

static struct owner the_owner;

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct owner *o = userdata;
        Wb__Ok ok = WB__OK__INIT;
        Wb__FromAgent answer = WB__FROM_AGENT__INIT;

        (void)m;
        if (o->closed)
                abort();
        answer.body_case = WB__FROM_AGENT__BODY_OK;
        answer.ok = &ok;
        (void)control_send(o->control, &answer);
        if (o->how & 1)
                (void)control_send_error(o->control, "x", "\x01\xff%s");
        if (o->how & 2)
                control_finish(o->control);
}

static void on_closed(void *userdata)
{
        if (((struct owner *)userdata)->closed++)
                abort();
}

static const struct control_handler handler = {.message = on_message, .closed = on_closed};

static int open_any(struct control *c, const Wb__ToAgent *m)
{
        if (the_owner.how & 4 && m->body_case == WB__TO_AGENT__BODY_INFO)
                return -EPROTO;
        the_owner.control = c;
        control_set_handler(c, &handler, &the_owner);
        on_message(&the_owner, m);
        return 0;
}

static void turn(struct event_base *base)
{
        for (int i = 0; i < 4; i++)
                (void)event_base_loop(base, EVLOOP_NONBLOCK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static struct agent agent;
        static struct control_pool pool = {.agent = &agent, .open = open_any};
        size_t cut;
        int ends[2];

        if (n == 0)
                return 0;
        if (!agent.base)
                agent.base = event_base_new();
        the_owner = (struct owner){.how = data[0]};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0 ||
                control_new(&pool, ends[0]) < 0)
                abort();
        cut = (n - 1) * (data[0] >> 3) / 31;
        (void)!write(ends[1], data + 1, cut);
        turn(agent.base);
        (void)!send(ends[1], data + 1 + cut, n - 1 - cut, MSG_NOSIGNAL);
        turn(agent.base);
        (void)close(ends[1]);
        turn(agent.base);
        while (pool.oldest)
                control_free(pool.oldest);
        if (pool.n || pool.reader_bytes)
                abort();
        return 0;
}
