/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "broker/session_private.h"
#include "proto/base/clock.h"

/*
 * A tunnel stands (CONNECT or SOCKS5 was answered). Unless a rule lets anything pass (`protocol: tcp`), what it carries
 * is told by its first bytes and judged before one of them goes on: a ClientHello by its server name, an HTTP request
 * by being read (session_http.c). TLS is then opaque, or intercepted (session_inspect.c).
 */

/* What came is neither TLS nor HTTP: only a rule for anything at all would let it pass, and the refusal says so. */
void session_deny_protocol(struct session *s)
{
        s->request.protocol = PROTOCOL_TCP;
        (void)session_decide(s);
        session_deny(s, REASON_PROTOCOL_NOT_ALLOWED, NULL);
}

void session_tunnel_opened(struct session *s)
{
        bool allowed[PROTOCOL_MAX_] = {0};

        policy_protocols(s->vm->policy, &s->request, allowed);
        if (!allowed[PROTOCOL_TCP]) {
                session_set_state(s, SESSION_FIRST_BYTES);
                return;
        }
        s->request.protocol = PROTOCOL_TCP;
        enum reason reason = session_decide_again(s);
        if (reason == REASON_ALLOWED)
                session_relay(s);
        else
                session_deny(s, reason, NULL);
}

/* The whole ClientHello is here, and more of the client's bytes perhaps. */
static void judge_hello(struct session *s)
{
        char named[CLIENT_HELLO_NAME_MAX + 32] = "";

        s->request.protocol = PROTOCOL_TLS;
        s->ech = s->hello->ech;

        enum reason reason = session_decide_again(s);
        if (reason == REASON_ALLOWED)
                reason = client_hello_judge(s->hello, &s->request.host);
        if (reason == REASON_SNI_MISMATCH)
                (void)snprintf(named, sizeof(named), "the ClientHello names %s", s->hello->name);
        if (reason == REASON_ALLOWED && s->decision.inspect) {
                session_inspect(s);
                return;
        }
        session_release(s, s->hello, sizeof(*s->hello));
        s->hello = NULL;
        if (reason == REASON_ALLOWED)
                session_relay(s);
        else
                session_deny(s, reason, named[0] ? named : NULL);
}

static void step_hello(struct session *s)
{
        if (!s->hello) {
                s->hello = session_alloc(s, sizeof(*s->hello));
                if (!s->hello)
                        return;
        }

        int r = client_hello_parse(s->hello, buffer_data(&s->client.in), buffer_used(&s->client.in));
        if (r == 0) {
                s->speaks = SPEAKS_TLS;
                judge_hello(s);
        } else if (r != CLIENT_HELLO_E_MORE) {
                session_deny_protocol(s); /* no ClientHello, so an alert would be understood by nobody */
        } else if (s->client.eof) {
                session_linger(s);
        }
}

void session_step_first_bytes(struct session *s)
{
        (void)peer_flush(&s->client);
        if (!session_read_client(s, CLIENT_HELLO_RAW_MAX_BYTES))
                return;
        if (!buffer_used(&s->client.in)) {
                if (s->client.eof)
                        session_linger(s);
                return;
        }
        switch (first_byte_of(*buffer_data(&s->client.in))) {
        case FIRST_BYTE_TLS: step_hello(s); break;
        case FIRST_BYTE_HTTP: session_set_state(s, SESSION_INNER_HEAD); break;
        case FIRST_BYTE_OTHER: session_deny_protocol(s); break;
        }
}

void session_relay(struct session *s)
{
        struct worker_context *context = s->vm->context;

        size_t held_bytes = buffer_used(&s->client.in);

        s->speaks = SPEAKS_NOTHING;
        if (relay_init(&s->relay, &s->client, &s->server, &context->pipes, &s->vm->limits, s->counted_rule) < 0) {
                session_set_state(s, SESSION_CLOSED);
                return;
        }
        relay_on_turn(&s->relay, session_wake, s);
        limits_owe(&s->vm->limits, s->counted_rule, LIMITS_UP, held_bytes);
        session_moved(s, held_bytes, 0);
        session_set_state(s, SESSION_RELAYING);
}

void session_step_relaying(struct session *s)
{
        uint64_t up = s->relay.up.moved_bytes, down = s->relay.down.moved_bytes;
        enum relay_outcome outcome = relay_pump(&s->relay, clock_monotonic_ns());

        session_moved(s, s->relay.up.moved_bytes - up, s->relay.down.moved_bytes - down);
        switch (outcome) {
        case RELAY_GOES_ON: break;
        case RELAY_QUOTA: session_deny(s, REASON_QUOTA_EXCEEDED, NULL); break;
        case RELAY_ENDED:
        case RELAY_NO_MEMORY: session_set_state(s, SESSION_CLOSED); break;
        }
}

void session_want_relaying(struct session *s)
{
        s->rate_wait_ns = relay_want(&s->relay);
}
