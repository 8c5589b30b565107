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
#include "proto/base/wipe.h"

/* A connection, and the one request of it that is under way: both live until both are done. */
struct control_request {
        TAILQ_ENTRY(control_request) link;
        struct control *control;
        struct bufferevent *stream; /* NULL: the peer is gone */
        bool busy;                  /* an answer is owed */
        bool wants_reload;
        bool ends; /* closed once what is queued is written */
        struct event *idle;
};
TAILQ_HEAD(request_list, control_request);

struct control {
        struct registry *registry;
        struct listener *listener; /* NULL: stopped */
        uint64_t idle_ms;
        struct request_list peers;
        size_t peers_n;
};

/* Takes n bytes out of the buffer, and wipes the library's own copy: a request may hold secrets. to may be NULL. */
static void take_bytes(struct evbuffer *in, size_t n, char *to)
{
        while (n > 0) {
                struct evbuffer_iovec part;
                size_t part_n;

                (void)evbuffer_peek(in, (ssize_t)n, NULL, &part, 1);
                part_n = part.iov_len < n ? part.iov_len : n;
                if (to)
                        to = mempcpy(to, part.iov_base, part_n);
                explicit_bzero(part.iov_base, part_n);
                (void)evbuffer_drain(in, part_n);
                n -= part_n;
        }
}

static void free_stream(struct control_request *p)
{
        struct evbuffer *in = p->stream ? bufferevent_get_input(p->stream) : NULL;

        if (!in)
                return;
        take_bytes(in, evbuffer_get_length(in), NULL);
        bufferevent_free(p->stream);
        p->stream = NULL;
}

static void free_peer(struct control_request *p)
{
        TAILQ_REMOVE(&p->control->peers, p, link);
        p->control->peers_n--;
        free_stream(p);
        if (p->idle)
                event_free(p->idle);
        free(p);
}

/* The peer is gone; what it asked for goes on, its answer goes nowhere. */
static void lose_peer(struct control_request *p)
{
        if (!p->busy) {
                free_peer(p);
                return;
        }
        free_stream(p);
}

/* The next request is looked for when this is written. */
static void send_answer(struct control_request *p, json_t *answer)
{
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);

        if (!text || evbuffer_add_printf(bufferevent_get_output(p->stream), "%s\n", text) < 0)
                p->ends = true;
}

/* The time runs over whatever the peer sends that is no whole request, and over an answer that it does not take. */
static void wait_for_request(struct control_request *p)
{
        const uint64_t ms = p->control->idle_ms;
        const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

        (void)event_add(p->idle, &tv);
}

void control_answer(struct control_request *request, json_t *answer)
{
        struct control_request *p = request;

        p->busy = false;
        if (p->stream)
                send_answer(p, answer);
        wait_for_request(p);
        json_decref(answer);
        if (!p->stream)
                free_peer(p);
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
        (void)event_del(p->idle);
        if (json_is_object(body))
                control_operate(p->control->registry, body, p);
        else
                /* The library's own words may quote the request, and that may be a secret. */
                control_answer(
                        p, answer_error("a request is one line with a JSON object; this one is %s from byte %d on",
                                   body ? "something else" : "no JSON", body ? 0 : error.position));
        json_decref(body);
}

/*
 * One request at a time: the next line waits until the answer is out, so that a peer that reads none cannot make the
 * broker hold any number of them.
 */
static void take_lines(struct control_request *p)
{
        struct evbuffer *in = bufferevent_get_input(p->stream);
        struct evbuffer_ptr end;
        _cleanup_(wipe_freep) char *line = NULL;

        if (p->busy || p->ends || evbuffer_get_length(bufferevent_get_output(p->stream)))
                return;
        end = evbuffer_search_eol(in, NULL, NULL, EVBUFFER_EOL_LF);
        if (end.pos >= 0) {
                size_t n = (size_t)end.pos;

                line = malloc(n + 1);
                if (!line) {
                        p->ends = true;
                        control_answer(p, answer_error("no memory"));
                        return;
                }
                take_bytes(in, n + 1, line);
                take_line(p, line, n);
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

        if (evbuffer_get_length(bufferevent_get_output(stream)))
                return;
        if (p->ends)
                lose_peer(p);
        else
                take_lines(p);
}

static void on_idle(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        lose_peer(userdata);
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
                p->idle = event_new(c->registry->base, -1, 0, on_idle, p);
        if (p && p->idle)
                p->stream = bufferevent_socket_new(c->registry->base, fd, BEV_OPT_CLOSE_ON_FREE);
        if (!p || !p->stream) {
                close_fd(fd);
                if (p && p->idle)
                        event_free(p->idle);
                free(p);
                return;
        }
        p->control = c;
        TAILQ_INSERT_TAIL(&c->peers, p, link);
        c->peers_n++;
        bufferevent_setcb(p->stream, on_read, on_written, on_event, p);
        bufferevent_setwatermark(p->stream, EV_READ, 0, CONTROL_LINE_MAX_BYTES);
        (void)bufferevent_enable(p->stream, EV_READ | EV_WRITE);
        wait_for_request(p);
}

static void take_peer(void *userdata, int peer)
{
        struct control *c = userdata;

        if (c->peers_n >= CONTROL_PEERS_MAX)
                close_fd(peer);
        else
                add_peer(c, peer);
}

int control_new(struct registry *registry, int listener, uint64_t idle_ms, struct control **ret)
{
        const struct listener_calls calls = {.accept = take_peer};
        struct control *c = calloc(1, sizeof(*c));
        int r = -ENOMEM;

        if (c) {
                *c = (struct control){.registry = registry, .idle_ms = idle_ms};
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
