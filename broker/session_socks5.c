/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/session_private.h"

/* SOCKS5 up to the reply; what follows is a tunnel as behind a CONNECT. */

static void take_request(struct session *s)
{
        s->request = (struct request){
                .via = VIA_SOCKS5,
                .host = s->socks5->host,
                .port = s->socks5->port,
        };
        s->has_request = true;
        s->tunnel = true;
        session_open(s);
}

static void refuse(struct session *s)
{
        uint8_t reply[SOCKS5_REPLY_MAX_BYTES];

        if (s->socks5->reason != REASON_ALLOWED) {
                session_deny(s, s->socks5->reason, NULL);
                return;
        }
        (void)buffer_append(&s->client.out, reply, socks5_reply(s->socks5->reply, NULL, 0, reply));
        session_linger(s);
}

/* true: there may be more to parse. */
static bool take_event(struct session *s, enum socks5_event event)
{
        switch (event) {
        case SOCKS5_METHOD:
                if (!buffer_append(&s->client.out, SOCKS5_METHOD_NONE, SOCKS5_METHOD_BYTES))
                        return true;
                session_set_state(s, SESSION_CLOSED);
                return false;
        case SOCKS5_NO_METHOD:
                (void)buffer_append(&s->client.out, SOCKS5_METHOD_REFUSED, SOCKS5_METHOD_BYTES);
                session_linger(s);
                return false;
        case SOCKS5_REQUEST: take_request(s); return false;
        case SOCKS5_REFUSED: refuse(s); return false;
        case SOCKS5_NOT_SOCKS: session_linger(s); return false;
        case SOCKS5_MORE:
                if (s->client.eof)
                        session_linger(s);
                return false;
        }
        return false;
}

void session_step_socks5(struct session *s)
{
        enum socks5_event event;
        size_t taken;

        if (!session_read_client(s, SESSION_CHUNK_BYTES))
                return;
        do {
                event = socks5_feed(s->socks5, buffer_data(&s->client.in), buffer_used(&s->client.in), &taken);
                buffer_consume(&s->client.in, taken);
        } while (take_event(s, event));
        (void)peer_flush(&s->client);
}

void session_socks5_opened(struct session *s)
{
        uint8_t reply[SOCKS5_REPLY_MAX_BYTES];
        size_t n = socks5_reply(SOCKS5_REPLY_SUCCEEDED, NULL, 0, reply);

        session_release(s, s->socks5, sizeof(*s->socks5));
        s->socks5 = NULL;
        s->speaks = SPEAKS_NOTHING;
        if (buffer_append(&s->client.out, reply, n) < 0) {
                session_set_state(s, SESSION_CLOSED);
                return;
        }
        (void)peer_flush(&s->client);
        session_tunnel_opened(s);
}
