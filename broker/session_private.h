/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of a session share. Nobody else includes it. */

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/audit.h"
#include "broker/client_hello.h"
#include "broker/dialer.h"
#include "broker/http1.h"
#include "broker/http1_body.h"
#include "broker/inspect.h"
#include "broker/peer.h"
#include "broker/policy.h"
#include "broker/relay.h"
#include "broker/reply.h"
#include "broker/request.h"
#include "broker/resolver.h"
#include "broker/session.h"
#include "broker/socks5.h"
#include "broker/vm.h"

/*
 * The states in the order of a connection's life. Each has one step function, which does what can be done now, and one
 * that says what to wait for (the table in session.c).
 */
enum session_state {
        SESSION_GREETING,  /* nothing has come: the first byte tells SOCKS5 from HTTP */
        SESSION_SOCKS5,    /* SOCKS5: methods and request */
        SESSION_HEAD,      /* HTTP: a request's head at the proxy, or between requests */
        SESSION_RESOLVING, /* the target was allowed and its name is asked for */
        SESSION_DIALLING,
        SESSION_RECORDING,   /* connected; the audit record must stand before a byte is forwarded */
        SESSION_FIRST_BYTES, /* the tunnel stands; what it carries is judged by how it begins */
        SESSION_TLS_CLIENT,  /* the tunnel's TLS is intercepted: its handshake with us */
        SESSION_INNER_HEAD,  /* HTTP in a tunnel: a request's head */
        SESSION_TLS_SERVER,  /* an intercepted request was allowed: our handshake with the server */
        SESSION_EXCHANGE,    /* an HTTP request and its answer */
        SESSION_RELAYING,    /* opaque */
        SESSION_LINGERING,   /* our last words are written, what still comes is dropped */
        SESSION_CLOSED,      /* freed when the step ends */
        SESSION_STATES_,
};

/* What a refusal is to be said in. */
enum session_speaks {
        SPEAKS_NOTHING, /* not known, or nothing we could answer in: a refusal is a close */
        SPEAKS_HTTP,
        SPEAKS_SOCKS5, /* until the reply */
        SPEAKS_TLS,
};

/* An HTTP request on its way: from its complete head until both bodies have ended. */
struct exchange {
        struct http1_body up;
        struct http1_body down;
        struct http1_response *answer; /* while its head is in work */
        bool answered;                 /* a final answer's head went to the client */
        bool told;                     /* without an answer: another record tells of it */
        bool chunked_up;
        bool begun;                      /* the limits let the head go */
        enum http1_framing framing_down; /* to the client */
        bool close_client;               /* behind this answer */
        bool close_server;
        bool reused; /* the server's connection is not new: if it is dead, a new one may be tried */
        bool upgraded;
        int status;
        struct limits_waiter up_waiter;
        struct limits_waiter down_waiter;
        uint64_t up_wait_ns; /* a limit holds the bytes of that direction back */
        uint64_t down_wait_ns;
        uint64_t began_ns;
        uint64_t began_up; /* the session's byte counts when it began */
        uint64_t began_down;
};

struct audit_ticket;

struct session {
        LIST_ENTRY(session) in_vm;
        struct vm *vm;
        uint64_t id;
        enum session_state state;
        enum session_speaks speaks;

        struct peer client;
        struct peer server;
        struct event timer;
        uint64_t deadline_ns;  /* 0: none */
        uint64_t active_ns;    /* a byte moved last */
        uint64_t armed_ns;     /* when the timer fires; 0: it does not */
        uint64_t rate_wait_ns; /* a limit holds bytes back for so long; 0: none does */

        /* The target and what was decided. request.method and .path point into *head or kept, or are NULL. */
        struct request request;
        struct decision decision;
        int counted_rule;

        /* On the way to the server. */
        int status; /* of the last answer */
        struct resolver_waiter waiter;
        struct dialer *dialer;
        struct audit_ticket *ticket;
        struct dns_address *addresses; /* judged; charged to the VM */
        size_t addresses_n;
        uint64_t opened_ns;

        /* What is parsed. At most one of each, only while it is needed. */
        struct socks5 *socks5;
        struct http1_request *head;
        struct client_hello *hello;
        char *kept; /* method and path of a request that was upgraded, in place of *head */
        size_t kept_bytes;
        struct exchange *exchange;
        struct relay relay;
        struct inspected *inspected; /* NULL: its TLS, if there is any, is not intercepted */

        uint64_t bytes_up;
        uint64_t bytes_down;
        uint64_t retry_after_s; /* of the refusal that is due */

        struct dns_address address; /* that the server has, if has_address */
        bool has_address;
        bool moved;    /* the state was set during this step */
        bool stepping; /* in session_step(), up the stack */
        bool has_request;
        bool counted; /* has its place in the limits, under counted_rule */
        bool recount; /* gave it up for a change of policy */
        bool resolving;
        bool tunnel;        /* CONNECT or SOCKS5: the server's connection is the session's, not a request's */
        bool server_used;   /* a request went there: the next finds it in any state */
        bool recorded;      /* egress_open stands, egress_close is due */
        bool ech;           /* the ClientHello offered it */
        bool requests_seen; /* an HTTP request was served: the next may take its time */
};

/* A pipelining client is read ahead by so much, a busy one by a chunk. */
#define SESSION_HELD_MAX    65536u
#define SESSION_CHUNK_BYTES 16384u

/* session.c */
void session_set_state(struct session *s, enum session_state state);
void session_step(
        struct session *s); /* does all that can be done now; may free s. Does nothing when called from a step. */
void session_set_deadline(struct session *s, uint64_t timeout_ms);
void session_wake(void *session);                             /* steps, from the loop */
void session_linger(struct session *s);                       /* ends once what is in client.out is written */
bool session_read_client(struct session *s, size_t held_max); /* false: the session has ended, for want of memory */
void *session_alloc(struct session *s, size_t n);             /* zeroed and charged; NULL: the session has ended */
void session_release(struct session *s, void *p, size_t n);   /* takes NULL */
void session_drop_head(struct session *s);
bool session_watches_server(const struct session *s); /* between requests: what comes of it, be it its end, ends all */
void session_moved(struct session *s, uint64_t up, uint64_t down); /* bytes, for the counts and the idle time */

/* session_deny.c */
void session_deny(struct session *s, enum reason reason, const char *detail);
void session_record(struct session *s, enum audit_event event, struct audit_record *ret_record); /* the common fields */
void session_submit(struct session *s, const struct audit_record *record);
void session_record_close(struct session *s); /* egress_close, if egress_open stands */

/* session_open.c: from a request to a server that is connected and recorded; then session_opened() is called. */
enum reason session_decide(struct session *s); /* by s->request, all but addresses and limits */
enum reason session_decide_again(
        struct session *s); /* more is known of the request: its place in the limits follows the rule */
enum reason session_judge_address(const struct session *s); /* is the server's address still outside of the floor? */
enum reason session_count_request(struct session *s);       /* requests_per_s; sets s->retry_after_s */
void session_open(struct session *s);
void session_open_cancel(struct session *s);  /* whatever is under way */
void session_close_server(struct session *s); /* egress_close and its place in the limits */
void session_step_opening(struct session *s);

/* session_tunnel.c */
void session_tunnel_opened(struct session *s);
void session_step_first_bytes(struct session *s);
void session_deny_protocol(struct session *s);
void session_relay(struct session *s);
void session_step_relaying(struct session *s);
void session_want_relaying(struct session *s);

/* session_inspect.c */
void session_inspect(struct session *s); /* s->hello was judged, and client.in begins with it */
void session_step_tls_client(struct session *s);
void session_want_tls_client(struct session *s);
void session_inspect_server(struct session *s); /* a request was allowed; session_exchange_begin() follows */
void session_step_tls_server(struct session *s);
void session_inspected_done(struct session *s); /* behind the peers' end; idempotent */

/* session_socks5.c */
void session_step_socks5(struct session *s);
void session_socks5_opened(struct session *s);

/* session_http.c: heads. session_exchange.c: bodies. */
void session_step_head(struct session *s);
void session_step_inner_head(struct session *s);
void session_http_opened(struct session *s);
void session_exchange_begin(struct session *s);
void session_step_exchange(struct session *s);
void session_want_exchange(struct session *s);
void session_exchange_leave_limits(struct session *s);
void session_exchange_free(struct session *s);
