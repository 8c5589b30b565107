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

void session_exchange_free(struct session *s)
{
        if (!s->exchange)
                return;
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
        x->began_ns = clock_monotonic_ns();
        x->began_up = s->bytes_up;
        x->began_down = s->bytes_down;
        x->reused = s->server_used;
        s->server_used = true;

        size_t n = http1_request_write(
                s->head, !s->head->keep_alive && !s->head->upgrade, (char *)tail, HTTP1_FORWARD_MAX_BYTES);
        buffer_commit(&s->server.out, n);
        session_moved(s, n, 0);
        http1_body_init(&x->up, s->head->framing, s->head->length_bytes);
        (void)http1_body_scan(&x->up, NULL, 0, &none); /* an empty one has ended */
        x->chunked_up = s->head->framing == HTTP1_FRAMING_CHUNKED;
        s->requests_seen = true;
        expect_answer(s);
        session_set_state(s, SESSION_EXCHANGE);
}

/* Reads at most a chunk, within the limits. false: the exchange has ended. */
static bool read_limited(struct session *s, struct peer *from, enum limits_direction direction, uint64_t *ret_wait_ns)
{
        size_t most = 0;
        ssize_t n = 0;

        *ret_wait_ns = 0;
        int r = limits_grant(&s->vm->limits, s->counted_rule, direction, SESSION_CHUNK_BYTES, clock_monotonic_ns(),
                &most, ret_wait_ns);
        if (r == LIMITS_E_QUOTA) {
                session_deny(s, REASON_QUOTA_EXCEEDED, NULL);
                return false;
        }
        if (r == 0)
                n = peer_fill(from, most);
        if (n < 0) {
                session_set_state(s, SESSION_CLOSED);
                return false;
        }
        if (n > 0)
                limits_spend(&s->vm->limits, s->counted_rule, direction, (size_t)n);
        session_moved(s, 0, direction == LIMITS_DOWN ? (uint64_t)n : 0);
        return true;
}

/* From in to out, framed anew, until one side is exhausted. */
static enum http1_body_event transfer(
        struct http1_body *body, struct buffer *in, bool chunked, struct buffer *out, size_t *ret_n)
{
        enum http1_body_event event;
        size_t total = 0;

        do {
                size_t used = buffer_used(in), taken, n;
                size_t room = used + 2 * HTTP1_TRANSFER_ROOM_MIN;
                uint8_t *tail;

                if (buffer_reserve(out, room, &tail) < 0)
                        return HTTP1_BODY_MALFORMED; /* for want of memory it ends the same way */
                event = http1_body_transfer(body, buffer_data(in), used, &taken, chunked, tail, room, &n);
                buffer_commit(out, n);
                buffer_consume(in, taken);
                total += n;
        } while (event == HTTP1_BODY_DATA && buffer_used(out) < 2 * OUT_ENOUGH_BYTES);
        if (!buffer_used(out))
                buffer_done(out);
        *ret_n = total;
        return event;
}

/* The request's body. false: the exchange has ended. */
static bool pump_up(struct session *s)
{
        struct exchange *x = s->exchange;

        (void)peer_flush(&s->server);
        if (x->up.ended) /* what follows is the next request; the client's end is noticed */
                return session_read_client(s, SESSION_CHUNK_BYTES);
        if (s->server.broken || buffer_used(&s->server.out) >= OUT_ENOUGH_BYTES)
                return true;
        if (!buffer_used(&s->client.in) && !read_limited(s, &s->client, LIMITS_UP, &x->up_wait_ns))
                return false;

        size_t n = 0;
        enum http1_body_event event = transfer(&x->up, &s->client.in, x->chunked_up, &s->server.out, &n);
        session_moved(s, n, 0);
        if (event == HTTP1_BODY_MALFORMED) {
                session_deny(s, REASON_MALFORMED_REQUEST, "the body's framing");
                return false;
        }
        (void)peer_flush(&s->server);
        if (event == HTTP1_BODY_MORE && s->client.eof && !buffer_used(&s->client.in)) {
                session_linger(s); /* cut short: the server must not take it for the whole */
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

/* Both ends of the answer's body are reached. */
static void finish(struct session *s)
{
        struct exchange *x = s->exchange;
        bool keep_client = !x->close_client && x->up.ended;
        bool keep_server = !x->close_server && x->up.ended && !buffer_used(&s->server.in) && !s->server.eof &&
                           !s->server.broken && !buffer_used(&s->server.out);

        record_exchange(s);
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

/* After the 101 the bytes are anybody's: opaque, both ways. */
static void upgrade(struct session *s)
{
        record_exchange(s);
        session_exchange_free(s);
        session_relay(s);
}

/* The answer's body. */
static void pump_body(struct session *s)
{
        struct exchange *x = s->exchange;
        bool chunked = x->framing_down == HTTP1_FRAMING_CHUNKED;
        size_t n = 0;
        enum http1_body_event event = transfer(&x->down, &s->server.in, chunked, &s->client.out, &n);

        if (event == HTTP1_BODY_MORE && s->server.eof && !buffer_used(&s->server.in)) {
                event = s->server.reset ? HTTP1_BODY_MALFORMED : http1_body_eof(&x->down);
                if (event == HTTP1_BODY_END && chunked && buffer_append(&s->client.out, HTTP1_CHUNK_LAST, 5) < 0)
                        event = HTTP1_BODY_MALFORMED;
        }
        (void)peer_flush(&s->client);
        if (event == HTTP1_BODY_END)
                finish(s);
        else if (event == HTTP1_BODY_MALFORMED)
                session_linger(s); /* without an end of the body: the client can tell */
}

static void pump_down(struct session *s)
{
        struct exchange *x = s->exchange;

        (void)peer_flush(&s->client);
        if (buffer_used(&s->client.out) >= OUT_ENOUGH_BYTES)
                return;
        if (!buffer_used(&s->server.in) && !s->server.eof &&
                !read_limited(s, &s->server, LIMITS_DOWN, &x->down_wait_ns))
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
        bool body_due = !x->up.ended && !x->up_wait_ns && !s->server.broken && !buffer_used(&s->client.in) &&
                        buffer_used(&s->server.out) < OUT_ENOUGH_BYTES;
        bool ahead = x->up.ended && buffer_used(&s->client.in) < SESSION_CHUNK_BYTES;

        peer_want(&s->client, body_due || ahead, buffer_used(&s->client.out));
        peer_want(&s->server, !x->down_wait_ns && buffer_used(&s->client.out) < OUT_ENOUGH_BYTES,
                buffer_used(&s->server.out));
        s->rate_wait_ns = x->up_wait_ns;
        if (x->down_wait_ns && (!s->rate_wait_ns || x->down_wait_ns < s->rate_wait_ns))
                s->rate_wait_ns = x->down_wait_ns;
}
