/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Heads of HTTP/1 requests and answers: bytes in, one checked struct out, and the head that is forwarded written anew
 * from it (RFC 9110, RFC 9112, INTERFACES.md "What the tunnel may carry"). Pure.
 *
 * A parser is strict where two parsers could disagree: what it does not understand it refuses. It takes bytes in any
 * pieces and its verdict depends on the bytes alone. It copies them into itself (HTTP1_HEAD_MAX_BYTES, no allocation),
 * so that nothing of the caller's buffer is kept, and every text it gives is NUL-terminated, has no NUL or control byte
 * in it (HTAB in a field's value excepted), and lives as long as the struct stays where it is. The structs are about 18
 * KiB: keep them on the heap while a head is in work, one a direction, not in an idle session.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/reason.h"
#include "proto/wire/hostname.h"

/* INTERFACES.md. The line ends and the empty lines before a request count, the first line is no header line. */
#define HTTP1_HEAD_MAX_BYTES (16u * 1024u)
#define HTTP1_FIELDS_MAX     100u

/* Room in which any head that was accepted can be written: ours add a Host, a framing, Connection and Upgrade. */
#define HTTP1_FORWARD_MAX_BYTES (HTTP1_HEAD_MAX_BYTES + 512u)

#define HTTP1_E_MORE    1 /* all bytes were taken and the head goes on */
#define HTTP1_E_REFUSED 2 /* see refusal; nothing more may be parsed of this connection */

/* How a body's end is known. */
enum http1_framing {
        HTTP1_FRAMING_NONE, /* no body, and no header says so */
        HTTP1_FRAMING_LENGTH,
        HTTP1_FRAMING_CHUNKED,
        HTTP1_FRAMING_UNTIL_CLOSE, /* answers only */
};

struct http1_refusal {
        enum reason reason;
        const char *detail; /* for a person, static, no full stop: "two Host fields" */
};

/* One field line: offsets into the head's text, where both are NUL-terminated. */
struct http1_field {
        uint16_t name, name_n;
        uint16_t value, value_n; /* without the white space around it */
        uint8_t id;              /* private: which well-known field this is */
        bool dropped;            /* not forwarded as it stands */
};

/* What requests and answers have in common. Private: use the functions. */
struct http1_head {
        uint8_t state;
        uint8_t fields_n;
        uint16_t used;  /* of text; also what counts against the limit */
        uint16_t start; /* of the line that is coming in */
        uint16_t first; /* of the first line, behind the empty ones */
        struct http1_field fields[HTTP1_FIELDS_MAX];
        char text[HTTP1_HEAD_MAX_BYTES + 1];
};

/* Where a request comes in. */
enum http1_place {
        HTTP1_AT_PROXY,  /* CONNECT in authority-form, everything else in absolute-form with http:// */
        HTTP1_IN_TUNNEL, /* origin-form, or absolute-form that equals the target; no CONNECT */
};

struct http1_context {
        enum http1_place place;
        const struct hostname *host; /* the tunnel's target; borrowed until the verdict; NULL at the proxy */
        uint16_t port;               /* the same */
        bool tls;   /* the tunnel's TLS is intercepted: https and port 443 are the defaults, else http and 80 */
        bool first; /* the tunnel's first bytes: what is no HTTP at all is REASON_PROTOCOL_NOT_ALLOWED, not malformed */
};

struct http1_request {
        struct http1_head head;
        struct http1_context context;
        struct http1_refusal refusal; /* set with HTTP1_E_REFUSED */

        /* Known as soon as the request line is complete and stays set after a refusal, for the answer and the audit. */
        const char *method; /* NULL: not known yet; a token, case kept */
        bool has_target;
        struct hostname host; /* the target's, never the Host field's */
        uint16_t port;
        bool connect;
        bool http10;

        /* Valid once the head is complete. */
        const char *path;  /* as sent, without the query; "/" where it was empty, "*" for OPTIONS of a whole server;
                              NULL: CONNECT */
        const char *query; /* behind the `?`; NULL: none */
        enum http1_framing framing; /* NONE, LENGTH or CHUNKED */
        uint64_t length_bytes;      /* with LENGTH; at most INT64_MAX */
        bool transparent;     /* CONNECT of the agent for a client that knows of no proxy: so it says, and it is only
                                 recorded */
        bool keep_alive;      /* the client would send another request; never with HTTP/1.0 (RFC 9112 9.3) */
        bool upgrade;         /* to websocket, which is the only one that is forwarded */
        bool expect_continue; /* Expect: 100-continue, forwarded; the client waits for a 100 or a final answer */
};

/* Before each head. context's host is borrowed. */
void http1_request_init(struct http1_request *r, const struct http1_context *context);

/*
 * Takes bytes up to the end of the head and no further: *ret_taken of n. 0 when the head is complete and right,
 * HTTP1_E_MORE, HTTP1_E_REFUSED (REASON_MALFORMED_REQUEST, REASON_HOST_MISMATCH, or REASON_PROTOCOL_NOT_ALLOWED as said
 * at `first`). Not to be called again after a verdict.
 */
int http1_request_feed(struct http1_request *r, const uint8_t *bytes, size_t n, size_t *ret_taken);

/* Has anything of a head come but empty lines? Tells an idle connection from a slow head. */
bool http1_request_begun(const struct http1_request *r);

/*
 * The head for the origin: origin-form, exactly one Host made from the target, the kept fields byte for byte and in
 * their order, our own framing, and `Connection: close` where close is set. Not for a CONNECT. The body, if any, must
 * follow in r->framing. Bytes written; never more than HTTP1_FORWARD_MAX_BYTES, which room must have.
 */
size_t http1_request_write(const struct http1_request *r, bool close, char *ret_text, size_t room);

/* What must be known of the request to read its answer. */
struct http1_exchange {
        bool head;    /* the method was HEAD */
        bool upgrade; /* a websocket upgrade was forwarded: a 101 may come */
};

struct http1_response {
        struct http1_head head;
        struct http1_exchange exchange;
        struct http1_refusal refusal; /* REASON_UPSTREAM_PROTOCOL */

        /* Valid once the head is complete. */
        unsigned status; /* 100 to 599 */
        bool http10;
        const char *phrase; /* may be empty */
        bool interim;  /* 1xx but 101: another head follows; not to be sent to an HTTP/1.0 client (RFC 9110 15.2) */
        bool upgraded; /* 101: all that follows is opaque in both directions */
        enum http1_framing framing;
        uint64_t length_bytes;
        bool keep_alive; /* the origin's connection can take another request once the body has ended */
};

void http1_response_init(struct http1_response *r, const struct http1_exchange *exchange);

/* As http1_request_feed(). After an interim answer: init and feed again. */
int http1_response_feed(struct http1_response *r, const uint8_t *bytes, size_t n, size_t *ret_taken);

bool http1_response_begun(const struct http1_response *r);

/*
 * How the body goes to this client: as it came, but never chunked to HTTP/1.0 (then UNTIL_CLOSE), and an answer that
 * only the close would end goes chunked to HTTP/1.1, so that the client can tell a cut from the end and keep its
 * connection.
 */
enum http1_framing http1_response_framing_to(const struct http1_response *r, bool client_http10);

/* The head for the client, with framing `to` and `Connection: close` where close is set. Room as with
 * http1_request_write(). */
size_t http1_response_write(
        const struct http1_response *r, enum http1_framing to, bool close, char *ret_text, size_t room);

/* RFC 9110 5.6.2: may this byte stand in a token, such as a method or a field's name? */
bool http1_is_token(uint8_t byte);
