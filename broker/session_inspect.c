/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "broker/session_private.h"
#include "broker/tls.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/*
 * Intercepted TLS: the client's ends here and another goes to the server. In between are requests as in any tunnel
 * (session_http.c), each of them decided. The server hears nothing, not even a ClientHello of ours, before a request
 * was allowed.
 */

void session_inspect(struct session *s)
{
        session_set_state(s, SESSION_TLS_CLIENT);
}

void session_inspected_done(struct session *s)
{
        if (!s->inspected)
                return;
        inspected_done(s->inspected);
        session_release(s, s->inspected, sizeof(*s->inspected));
        s->inspected = NULL;
}

/* A VM that opens more than its share waits, each connection within its time. */
static bool may_begin(struct session *s)
{
        struct bucket *share = &s->vm->handshakes;
        uint64_t now_ns = clock_monotonic_ns();

        (void)peer_flush(&s->client);
        if (buffer_used(&s->client.out)) /* the 200 goes before TLS */
                return false;
        s->rate_wait_ns = bucket_wait_ns(share, 1, now_ns);
        if (s->rate_wait_ns || !bucket_peek(share, 1, now_ns))
                return false;
        bucket_draw(share, 1);
        return true;
}

static int begin(struct session *s)
{
        struct inspect *inspect = NULL;
        int r = vm_inspect(s->vm, &inspect);

        if (r < 0)
                return r;
        s->inspected = session_alloc(s, sizeof(*s->inspected));
        if (!s->inspected)
                return -ENOBUFS;
        r = inspected_init(s->inspected, inspect, &s->request.host);
        if (r == 0)
                r = inspected_accept(s->inspected, &s->client, s->hello);
        session_release(s, s->hello, sizeof(*s->hello));
        s->hello = NULL;
        return r;
}

static void no_memory(struct session *s)
{
        vm_warn(s->vm, "its connections hold as much memory as they may, one is closed");
        session_set_state(s, SESSION_CLOSED);
}

static bool has_begun(struct session *s)
{
        int r;

        if (s->inspected)
                return true;
        if (!may_begin(s))
                return false;
        r = begin(s);
        if (r == -ENOBUFS || r == -ENOMEM) {
                no_memory(s);
        } else if (r < 0) {
                log_write_errno(LOG_LEVEL_ERROR, r, "vm %s: TLS cannot be intercepted", s->vm->name);
                session_deny(s, REASON_INSPECTION_REQUIRED, NULL);
        } else {
                s->speaks = SPEAKS_NOTHING;
        }
        return r == 0;
}

/* The commonest failure by far is a guest that does not know the CA. */
static void warn_of_client(struct session *s)
{
        char text[256];

        (void)snprintf(text, sizeof(text),
                "a client does not go on with intercepted TLS; does it trust the interception CA? (%s)",
                tls_fault(s->client.tls));
        vm_warn(s->vm, text);
}

void session_step_tls_client(struct session *s)
{
        if (!has_begun(s))
                return;
        switch (tls_handshake(s->client.tls)) {
        case 0: session_set_state(s, SESSION_INNER_HEAD); break;
        case TLS_E_FAILED:
                warn_of_client(s);
                session_linger(s);
                break;
        default: break;
        }
}

void session_want_tls_client(struct session *s)
{
        peer_want(&s->client, s->inspected != NULL, buffer_used(&s->client.out));
        peer_want(&s->server, false, false);
}

void session_inspect_server(struct session *s)
{
        int r = inspected_connect(s->inspected, &s->server);

        if (r < 0)
                no_memory(s);
        else
                session_set_state(s, SESSION_TLS_SERVER);
}

void session_step_tls_server(struct session *s)
{
        if (!session_read_client(s, SESSION_HELD_MAX))
                return;
        switch (tls_handshake(s->server.tls)) {
        case 0: session_exchange_begin(s); break;
        case TLS_E_FAILED: session_deny(s, REASON_UPSTREAM_TLS, tls_fault(s->server.tls)); break;
        default:
                if (s->client.eof && peer_hung_up(&s->client))
                        session_set_state(s, SESSION_CLOSED);
        }
}
