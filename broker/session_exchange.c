/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "broker/session_private.h"
#include "proto/base/clock.h"

/*
 * One HTTP request and its answer, both directions at once: the request's head is written anew, bodies are framed anew,
 * what is not a body of this exchange stays where it is. When both have ended the next head is due, or the connection
 * ends.
 */

#define OUT_ENOUGH_BYTES SESSION_CHUNK_BYTES /* in an out buffer: more is produced only when this much is written */

/* RFC 9110 9.2.2, and without a body: may be sent again on a new connection when an idle one turns out dead. */
static bool may_repeat(const struct http1_request *head)
{
        static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "TRACE"};

        if (head->framing != HTTP1_FRAMING_NONE)
                return false;
        for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
                if (!strcmp(head->method, methods[i]))
                        return true;
        return false;
}

static void record_exchange(struct session *s)
{
        const struct exchange *x = s->exchange;
        struct audit_record record;

        session_record(s, AUDIT_REQUEST, &record);
        record.has_decision = true;
        record.reason = REASON_ALLOWED;
        record.rule = s->decision.rule;
        record.status = x->status;
        record.has_bytes = true;
        record.bytes_up = s->bytes_up - x->began_up;
        record.bytes_down = s->bytes_down - x->began_down;
        record.duration_ms = (clock_monotonic_ns() - x->began_ns) / NSEC_PER_MSEC;
        session_submit(s, &record);
}

void session_exchange_leave_limits(struct session *s)
{
        if (!s->exchange)
                return;
        limits_forget(&s->exchange->up_waiter);
        limits_forget(&s->exchange->down_waiter);
}

/* What went to the server is told of, also where nobody waits for the answer. */
static bool is_to_be_recorded(const struct exchange *x)
{
        return x->answered || (x->begun && !x->told);
}

void session_exchange_free(struct session *s)
{
        if (!s->exchange)
                return;
        session_exchange_leave_limits(s);
        if (is_to_be_recorded(s->exchange))
                record_exchange(s);
        session_release(s, s->exchange->answer, sizeof(*s->exchange->answer));
        session_release(s, s->exchange, sizeof(*s->exchange));
        s->exchange = NULL;
}

static void expect_answer(struct session *s)
{
        const struct http1_exchange expected = {
                .head = !strcmp(s->head->method, "HEAD"),
                .upgrade = s->head->upgrade,
        };

        http1_response_init(s->exchange->answer, &expected);
}

void session_exchange_begin(struct session *s)
{
        struct exchange *x = s->exchange = session_alloc(s, sizeof(*x));
        uint8_t *tail;
        size_t none;

        if (!x)
                return;
        x->answer = session_alloc(s, sizeof(*x->answer));
        if (!x->answer)
                return;
        if (buffer_reserve(&s->server.out, HTTP1_FORWARD_MAX_BYTES, &tail) < 0) {
                session_set_state(s, SESSION_CLOSED);
                return;
        }
        x->up_waiter.wake = x->down_waiter.wake = session_wake;
        x->up_waiter.userdata = x->down_waiter.userdata = s;
        x->began_ns = clock_monotonic_ns();
        x->began_up = s->bytes_up;
        x->began_down = s->bytes_down;
        x->reused = s->server_used;
        s->server_used = true;

        size_t n = http1_request_write(
                s->head, !s->head->keep_alive && !s->head->upgrade, (char *)tail, HTTP1_FORWARD_MAX_BYTES);
        buffer_commit(&s->server.out, n);
        http1_body_init(&x->up, s->head->framing, s->head->length_bytes);
        (void)http1_body_transfer(&x->up, tail, 0, &none, false, tail, 0, &none); /* an empty one has ended */
        x->chunked_up = s->head->framing == HTTP1_FRAMING_CHUNKED;
        s->requests_seen = true;
        expect_answer(s);
        session_set_state(s, SESSION_EXCHANGE);
}

/* How many of `most` bytes may pass now: 0 with *ret_wait_ns set, or the exchange has ended (false). */
static bool ask_limits(
        struct session *s, enum limits_direction direction, size_t most, size_t *ret_bytes, uint64_t *ret_wait_ns)
{
        *ret_bytes = 0;
        *ret_wait_ns = 0;
        struct exchange *x = s->exchange;
        int r = limits_grant(&s->vm->limits, s->counted_rule, direction,
                direction == LIMITS_UP ? &x->up_waiter : &x->down_waiter, most, clock_monotonic_ns(), ret_bytes,
                ret_wait_ns);
        if (r != LIMITS_E_QUOTA)
                return true;
        session_deny(s, REASON_QUOTA_EXCEEDED, NULL);
        return false;
}

/* Reads at most a chunk of what the server sends. false: the exchange has ended. */
static bool read_server(struct session *s)
{
        size_t most;
        ssize_t n;

        if (!ask_limits(s, LIMITS_DOWN, SESSION_CHUNK_BYTES, &most, &s->exchange->down_wait_ns))
                return false;
        n = peer_fill(&s->server, most);
        if (n < 0) {
                session_set_state(s, SESSION_CLOSED);
                return false;
        }
        limits_spend(&s->vm->limits, s->counted_rule, LIMITS_DOWN, (size_t)n);
        session_moved(s, 0, (uint64_t)n);
        return true;
}

/*
 * A body from in to the peer, framed anew, until nothing more is there, it has ended, or the peer takes no more (then
 * its being writable goes on with it). An enum http1_body_event, or a negative errno.
 */
static int transfer(struct http1_body *body, struct buffer *in, size_t most, bool chunked, struct peer *to)
{
        enum http1_body_event event;

        do {
                size_t n = most < SESSION_CHUNK_BYTES ? most : SESSION_CHUNK_BYTES, taken, written;
                size_t room = n + 2 * HTTP1_TRANSFER_ROOM_MIN;
                uint8_t *tail;

                int r = buffer_reserve(&to->out, room, &tail);
                if (r < 0)
                        return r;
                event = http1_body_transfer(body, buffer_data(in), n, &taken, chunked, tail, room, &written);
                buffer_commit(&to->out, written);
                buffer_consume(in, taken);
                most -= taken;
                (void)peer_flush(to);
                if (!buffer_used(&to->out))
                        buffer_done(&to->out);
        } while ((event == HTTP1_BODY_DATA || (event == HTTP1_BODY_MORE && most)) &&
                 buffer_used(&to->out) < OUT_ENOUGH_BYTES && !to->broken);
        return (int)event;
}

/* The head goes when the limits let anything pass at all, and then as a whole. false: not yet, or the exchange has
 * ended. */
static bool begin_up(struct session *s)
{
        struct exchange *x = s->exchange;
        size_t head_bytes = buffer_used(&s->server.out), granted;

        if (x->begun)
                return true;
        if (!ask_limits(s, LIMITS_UP, 1, &granted, &x->up_wait_ns) || !granted)
                return false;
        x->begun = true;
        limits_owe(&s->vm->limits, s->counted_rule, LIMITS_UP, head_bytes);
        session_moved(s, head_bytes, 0);
        return true;
}

/* What the limits let pass of the body's bytes that are here. false: the exchange has ended. */
static bool pass_up(struct session *s, size_t granted)
{
        struct exchange *x = s->exchange;
        size_t before = buffer_used(&s->client.in);
        int event = transfer(&x->up, &s->client.in, granted, x->chunked_up, &s->server);
        size_t passed = before - buffer_used(&s->client.in);

        limits_spend(&s->vm->limits, s->counted_rule, LIMITS_UP, passed);
        session_moved(s, passed, 0);
        if (event < 0)
                session_set_state(s, SESSION_CLOSED);
        else if (event == HTTP1_BODY_MALFORMED)
                session_deny(s, REASON_MALFORMED_REQUEST, "the body's framing");
        return event >= 0 && event != HTTP1_BODY_MALFORMED;
}

static bool takes_more(const struct session *s)
{
        return !s->exchange->up.ended && !s->server.broken && buffer_used(&s->server.out) < OUT_ENOUGH_BYTES;
}

/* The request's body. false: the exchange has ended. */
static bool pump_up(struct session *s)
{
        struct exchange *x = s->exchange;
        size_t granted;

        if (!begin_up(s))
                return s->state == SESSION_EXCHANGE;
        (void)peer_flush(&s->server);
        if (!buffer_used(&s->client.in) || x->up.ended) /* what follows the body is the next request */
                if (!session_read_client(s, SESSION_CHUNK_BYTES))
                        return false;
        if (!x->up.ended && !buffer_used(&s->client.in) && s->client.eof) {
                session_linger(s); /* cut short: the server must not take it for the whole */
                return false;
        }
        while (takes_more(s) && buffer_used(&s->client.in)) {
                if (!ask_limits(s, LIMITS_UP, buffer_used(&s->client.in), &granted, &x->up_wait_ns))
                        return false;
                if (!granted)
                        break;
                if (!pass_up(s, granted))
                        return false;
        }
        return true;
}

/* The server ended, or failed, without an answer. */
static void no_answer(struct session *s)
{
        struct exchange *x = s->exchange;

        if (!x->reused || s->tunnel || !may_repeat(s->head)) {
                session_deny(s, REASON_UPSTREAM_PROTOCOL, "the server closed without an answer");
                return;
        }
        session_exchange_free(s);
        session_close_server(s);
        s->status = 0;
        session_open(s);
}

static void plan_answer(struct session *s)
{
        struct exchange *x = s->exchange;
        const struct http1_response *a = x->answer;

        x->framing_down = http1_response_framing_to(a, s->head->http10);
        x->close_server = !a->keep_alive;
        x->close_client = !s->head->keep_alive || s->vm->context->draining || !x->up.ended ||
                          x->framing_down == HTTP1_FRAMING_UNTIL_CLOSE || (s->tunnel && x->close_server);
        x->upgraded = a->upgraded;
        x->status = s->status = (int)a->status;
        http1_body_init(&x->down, a->framing, a->length_bytes);
}

/* A whole head is there. false: the exchange has ended. */
static bool forward_head(struct session *s)
{
        struct exchange *x = s->exchange;
        uint8_t *tail;

        if (!x->answer->interim)
                plan_answer(s);
        if (!x->answer->interim || !s->head->http10) {
                if (buffer_reserve(&s->client.out, HTTP1_FORWARD_MAX_BYTES, &tail) < 0) {
                        session_set_state(s, SESSION_CLOSED);
                        return false;
                }
                buffer_commit(&s->client.out,
                        http1_response_write(x->answer, x->framing_down, x->close_client && !x->upgraded, (char *)tail,
                                HTTP1_FORWARD_MAX_BYTES));
        }
        if (x->answer->interim) {
                expect_answer(s);
                return true;
        }
        session_release(s, x->answer, sizeof(*x->answer));
        x->answer = NULL;
        x->answered = true;
        return true;
}

/* One head, interim or final. false: no whole one is there, or the exchange has ended. */
static bool take_head(struct session *s)
{
        struct exchange *x = s->exchange;
        size_t taken;

        int r = http1_response_feed(x->answer, buffer_data(&s->server.in), buffer_used(&s->server.in), &taken);
        buffer_consume(&s->server.in, taken);
        if (r == HTTP1_E_REFUSED) {
                session_deny(s, x->answer->refusal.reason, x->answer->refusal.detail);
                return false;
        }
        if (r == 0)
                return forward_head(s);
        if (!s->server.eof)
                return false;
        if (http1_response_begun(x->answer))
                session_deny(s, REASON_UPSTREAM_PROTOCOL, "the server closed in the middle of its answer's head");
        else
                no_answer(s);
        return false;
}

/* Both ends of the answer's body are reached. */
static void finish(struct session *s)
{
        struct exchange *x = s->exchange;
        bool keep_client = !x->close_client && x->up.ended;
        bool keep_server = !x->close_server && x->up.ended && !buffer_used(&s->server.in) && !s->server.eof &&
                           !s->server.broken && !buffer_used(&s->server.out);

        session_exchange_free(s);
        session_drop_head(s);
        if (!keep_client || (s->tunnel && !keep_server)) {
                session_linger(s);
                return;
        }
        if (!keep_server)
                session_close_server(s);
        session_set_state(s, s->tunnel ? SESSION_INNER_HEAD : SESSION_HEAD);
}

/* The request is judged again when the policy changes; its head is too large to be kept for that. */
static bool keep_request(struct session *s)
{
        size_t method_bytes = strlen(s->head->method) + 1, path_bytes = strlen(s->head->path) + 1;

        s->kept = session_alloc(s, method_bytes + path_bytes);
        if (!s->kept)
                return false;
        s->kept_bytes = method_bytes + path_bytes;
        memcpy(s->kept, s->head->method, method_bytes);
        memcpy(s->kept + method_bytes, s->head->path, path_bytes);
        session_drop_head(s);
        s->request.method = s->kept;
        s->request.path = s->kept + method_bytes;
        return true;
}

/* After the 101 the bytes are anybody's: opaque, both ways. */
static void upgrade(struct session *s)
{
        session_exchange_free(s);
        if (keep_request(s))
                session_relay(s);
}

/* The close was the end of the server's body; the client's has one of its own. */
static int end_chunks(struct session *s)
{
        int r = buffer_append(&s->client.out, HTTP1_CHUNK_LAST, sizeof(HTTP1_CHUNK_LAST) - 1);

        (void)peer_flush(&s->client);
        return r < 0 ? r : (int)HTTP1_BODY_END;
}

/* The answer's body. */
static void pump_body(struct session *s)
{
        struct exchange *x = s->exchange;
        bool chunked = x->framing_down == HTTP1_FRAMING_CHUNKED;
        int event = transfer(&x->down, &s->server.in, buffer_used(&s->server.in), chunked, &s->client);

        if (event == HTTP1_BODY_MORE && s->server.eof && !buffer_used(&s->server.in)) {
                event = s->server.reset ? (int)HTTP1_BODY_MALFORMED : (int)http1_body_eof(&x->down);
                if (event == HTTP1_BODY_END && chunked)
                        event = end_chunks(s);
        }
        if (event == HTTP1_BODY_END)
                finish(s);
        else if (event < 0 || event == HTTP1_BODY_MALFORMED)
                session_linger(s); /* without an end of the body: the client can tell */
}

static void pump_down(struct session *s)
{
        struct exchange *x = s->exchange;

        (void)peer_flush(&s->client);
        if (buffer_used(&s->client.out) >= OUT_ENOUGH_BYTES)
                return;
        if (!buffer_used(&s->server.in) && !s->server.eof && !read_server(s))
                return;
        while (!x->answered)
                if (!take_head(s))
                        return;
        if (x->upgraded)
                upgrade(s);
        else
                pump_body(s);
}

void session_step_exchange(struct session *s)
{
        if (!pump_up(s))
                return;
        pump_down(s);
        if (s->state != SESSION_EXCHANGE)
                return;
        (void)peer_flush(&s->client);
        if (s->client.broken || (s->client.eof && peer_hung_up(&s->client)))
                session_set_state(s, SESSION_CLOSED);
}

void session_want_exchange(struct session *s)
{
        const struct exchange *x = s->exchange;
        bool body_due = takes_more(s) && !x->up_wait_ns && !buffer_used(&s->client.in);
        bool ahead = x->begun && x->up.ended && buffer_used(&s->client.in) < SESSION_CHUNK_BYTES;

        peer_want(&s->client, body_due || ahead, buffer_used(&s->client.out));
        peer_want(&s->server, !x->down_wait_ns && buffer_used(&s->client.out) < OUT_ENOUGH_BYTES,
                x->begun && buffer_used(&s->server.out));
        s->rate_wait_ns = x->up_wait_ns;
        if (x->down_wait_ns && (!s->rate_wait_ns || x->down_wait_ns < s->rate_wait_ns))
                s->rate_wait_ns = x->down_wait_ns;
}
