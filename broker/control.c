/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "broker/control_op.h"
#include "broker/listener.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"

/* A connection, and the one request of it that is under way: both live until both are done. */
struct control_request {
        TAILQ_ENTRY(control_request) link;
        struct control *control;
        struct bufferevent *stream; /* NULL: the peer is gone */
        bool busy;                  /* an answer is owed */
        bool wants_reload;
        bool ends; /* closed once what is queued is written */
};
TAILQ_HEAD(request_list, control_request);

struct control {
        struct registry *registry;
        struct listener *listener; /* NULL: stopped */
        struct request_list peers;
        size_t peers_n;
};

static void free_peer(struct control_request *p)
{
        TAILQ_REMOVE(&p->control->peers, p, link);
        p->control->peers_n--;
        if (p->stream)
                bufferevent_free(p->stream);
        free(p);
}

/* The peer is gone; what it asked for goes on, its answer goes nowhere. */
static void lose_peer(struct control_request *p)
{
        if (!p->busy) {
                free_peer(p);
                return;
        }
        bufferevent_free(p->stream);
        p->stream = NULL;
}

static void send_answer(struct control_request *p, json_t *answer)
{
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);

        if (!text || evbuffer_add_printf(bufferevent_get_output(p->stream), "%s\n", text) < 0)
                p->ends = true;
}

void control_answer(struct control_request *request, json_t *answer)
{
        struct control_request *p = request;

        p->busy = false;
        if (p->stream)
                send_answer(p, answer);
        json_decref(answer);
        if (!p->stream)
                free_peer(p);
        else
                bufferevent_trigger(p->stream, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

void control_want_reload(struct control_request *request)
{
        request->wants_reload = true;
        if (monitor_tell(request->control->registry->monitor, IPC_WANT_RELOAD, 0) < 0)
                control_answer(request, answer_error("the monitor does not listen"));
}

void control_reloaded(struct control *c, int result)
{
        struct control_request *p, *next;

        for (p = TAILQ_FIRST(&c->peers); p; p = next) {
                next = TAILQ_NEXT(p, link);
                if (!p->busy || !p->wants_reload)
                        continue;
                p->wants_reload = false;
                control_answer(p, result == 0 ? answer_ok() : answer_error("not reloaded; the broker's log says why"));
        }
}

static void take_line(struct control_request *p, const char *line, size_t n)
{
        json_error_t error;
        json_t *body = json_loadb(line, n, JSON_REJECT_DUPLICATES, &error);

        p->busy = true;
        if (json_is_object(body))
                control_operate(p->control->registry, body, p);
        else
                control_answer(p, answer_error("a request is one line with a JSON object: %s",
                                          body ? "it is something else" : error.text));
        json_decref(body);
}

/* One request at a time: the next line waits until the answer is out. */
static void take_lines(struct control_request *p)
{
        struct evbuffer *in = bufferevent_get_input(p->stream);
        size_t n;
        _cleanup_free_ char *line = NULL;

        if (p->busy || p->ends)
                return;
        line = evbuffer_readln(in, &n, EVBUFFER_EOL_LF);
        if (line) {
                take_line(p, line, n);
                explicit_bzero(line, n); /* it may hold secrets */
        } else if (evbuffer_get_length(in) >= CONTROL_LINE_MAX_BYTES) {
                p->ends = true;
                control_answer(p, answer_error("a request is at most %u bytes", CONTROL_LINE_MAX_BYTES));
        }
}

static void on_read(struct bufferevent *stream, void *userdata)
{
        (void)stream;
        take_lines(userdata);
}

static void on_written(struct bufferevent *stream, void *userdata)
{
        struct control_request *p = userdata;

        if (p->ends && evbuffer_get_length(bufferevent_get_output(stream)) == 0)
                lose_peer(p);
}

/* A peer that has sent its last request may still wait for the answer. */
static void on_event(struct bufferevent *stream, short what, void *userdata)
{
        struct control_request *p = userdata;

        if ((what & BEV_EVENT_EOF) && (p->busy || evbuffer_get_length(bufferevent_get_output(stream)))) {
                p->ends = true;
                (void)bufferevent_disable(stream, EV_READ);
                return;
        }
        lose_peer(p);
}

static void add_peer(struct control *c, int fd)
{
        struct control_request *p = calloc(1, sizeof(*p));

        if (p)
                p->stream = bufferevent_socket_new(c->registry->base, fd, BEV_OPT_CLOSE_ON_FREE);
        if (!p || !p->stream) {
                close_fd(fd);
                free(p);
                return;
        }
        p->control = c;
        TAILQ_INSERT_TAIL(&c->peers, p, link);
        c->peers_n++;
        bufferevent_setcb(p->stream, on_read, on_written, on_event, p);
        bufferevent_setwatermark(p->stream, EV_READ, 0, CONTROL_LINE_MAX_BYTES);
        (void)bufferevent_enable(p->stream, EV_READ | EV_WRITE);
}

static void take_peer(void *userdata, int peer)
{
        struct control *c = userdata;

        if (c->peers_n >= CONTROL_PEERS_MAX)
                close_fd(peer);
        else
                add_peer(c, peer);
}

int control_new(struct registry *registry, int listener, struct control **ret)
{
        const struct listener_calls calls = {.accept = take_peer};
        struct control *c = calloc(1, sizeof(*c));
        int r = -ENOMEM;

        if (c) {
                *c = (struct control){.registry = registry};
                TAILQ_INIT(&c->peers);
                r = listener_new(registry->base, listener, &calls, c, &c->listener);
        }
        if (r < 0) {
                close_fd(listener);
                control_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

void control_stop(struct control *c)
{
        listener_free(c->listener);
        c->listener = NULL;
}

void control_free(struct control *c)
{
        if (!c)
                return;
        while (!TAILQ_EMPTY(&c->peers))
                free_peer(TAILQ_FIRST(&c->peers));
        listener_free(c->listener);
        free(c);
}
