/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "broker/session_private.h"

/*
 * Heads of HTTP requests: at the proxy (CONNECT and absolute-form) and inside of a tunnel. Each request is decided,
 * however many a connection carries.
 */

static bool start_head(struct session *s, enum http1_place place)
{
        struct http1_context context = {.place = place};

        if (s->head)
                return true;
        s->head = session_alloc(s, sizeof(*s->head));
        if (!s->head)
                return false;
        if (place == HTTP1_IN_TUNNEL) {
                context.host = &s->request.host;
                context.port = s->request.port;
                context.tls = s->inspected != NULL;
                context.first = !s->requests_seen;
        }
        http1_request_init(s->head, &context);
        return true;
}

static enum via via_of(const struct http1_request *head)
{
        if (!head->connect)
                return VIA_HTTP;
        return head->transparent ? VIA_TRANSPARENT : VIA_CONNECT;
}

/* What is known of the request, also of one that is refused. */
static void take_request(struct session *s, enum via via)
{
        const struct http1_request *head = s->head;

        s->request.method = head->connect ? NULL : head->method; /* CONNECT is the way, not the method in it */
        s->request.path = head->path;
        s->has_request = true;
        if (s->tunnel)
                return; /* the target is the tunnel's */
        s->request.via = via;
        s->request.protocol = head->connect ? PROTOCOL_AUTO : PROTOCOL_HTTP;
        s->request.port = head->has_target ? head->port : 0;
        if (head->has_target)
                s->request.host = head->host;
        else
                memset(&s->request.host, 0, sizeof(s->request.host));
}

static void refuse_head(struct session *s)
{
        const struct http1_refusal *refusal = &s->head->refusal;

        take_request(s, via_of(s->head));
        s->decision = (struct decision){.reason = refusal->reason, .rule = DECISION_NO_RULE};
        if (refusal->reason == REASON_PROTOCOL_NOT_ALLOWED) { /* no HTTP at all */
                s->speaks = SPEAKS_NOTHING;
                session_deny_protocol(s);
                return;
        }
        s->speaks = SPEAKS_HTTP;
        session_deny(s, refusal->reason, refusal->detail);
}

/* true: a whole head is there. Else all that came is taken, or the request was refused. */
static bool feed_head(struct session *s, enum http1_place place)
{
        bool begun = s->head && http1_request_begun(s->head);
        size_t taken;

        if (!buffer_used(&s->client.in)) {
                if (s->client.eof)
                        session_linger(s);
                return false;
        }
        if (!start_head(s, place))
                return false;

        int r = http1_request_feed(s->head, buffer_data(&s->client.in), buffer_used(&s->client.in), &taken);
        buffer_consume(&s->client.in, taken);
        if (r == HTTP1_E_REFUSED) {
                refuse_head(s);
                return false;
        }
        if (r == 0)
                return true;
        if (s->client.eof)
                session_linger(s);
        else if (!begun && s->requests_seen && http1_request_begun(s->head))
                session_set_deadline(s, s->vm->context->settings->request_head_ms);
        return false;
}

/* Does the server's connection serve this request as well? Its target is still the previous request's. */
static bool fits_server(const struct session *s)
{
        return s->server.fd >= 0 && !s->head->connect && s->head->port == s->request.port &&
               !strcmp(s->head->host.text, s->request.host.text);
}

static void decide_request(struct session *s)
{
        enum reason reason = session_decide_again(s);

        if (reason == REASON_ALLOWED)
                reason = session_count_request(s);
        if (reason != REASON_ALLOWED)
                session_deny(s, reason, NULL);
        else if (s->inspected && !s->server.tls)
                session_inspect_server(s);
        else
                session_exchange_begin(s);
}

/* Between requests a server has nothing to say: it ends, or it says something that is no answer to anything. */
static bool server_is_idle(struct session *s)
{
        if (s->server.fd < 0)
                return true;
        return peer_fill(&s->server, SESSION_CHUNK_BYTES) == 0 && !s->server.eof;
}

void session_step_head(struct session *s)
{
        (void)peer_flush(&s->client);
        if (!session_read_client(s, SESSION_CHUNK_BYTES))
                return;
        if (!server_is_idle(s))
                session_close_server(s);
        if (!feed_head(s, HTTP1_AT_PROXY))
                return;

        bool reuse = fits_server(s);
        if (!reuse)
                session_close_server(s);
        take_request(s, via_of(s->head));
        s->tunnel = s->head->connect;
        if (reuse)
                decide_request(s);
        else
                session_open(s);
}

void session_step_inner_head(struct session *s)
{
        (void)peer_flush(&s->client);
        if (!session_read_client(s, SESSION_CHUNK_BYTES))
                return;
        if (session_watches_server(s) && !server_is_idle(s)) {
                session_linger(s);
                return;
        }
        if (!feed_head(s, HTTP1_IN_TUNNEL))
                return;
        s->speaks = SPEAKS_HTTP;
        if (!s->inspected)
                s->request.protocol = PROTOCOL_HTTP;
        take_request(s, s->request.via);
        decide_request(s);
}

void session_http_opened(struct session *s)
{
        if (!s->head->connect) {
                session_exchange_begin(s);
                return;
        }
        session_drop_head(s);
        s->speaks = SPEAKS_NOTHING;
        if (reply_established(&s->client.out) < 0) {
                session_set_state(s, SESSION_CLOSED);
                return;
        }
        (void)peer_flush(&s->client);
        session_tunnel_opened(s);
}
