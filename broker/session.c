/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/session.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "broker/session_private.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/*
 * A session's life:
 *
 *     GREETING ─┬─► HEAD ───┬────────► RESOLVING ─► DIALLING ─► RECORDING ─┬─► EXCHANGE ─► HEAD ...
 *               └─► SOCKS5 ─┘                                              └─► FIRST_BYTES ─┬─► RELAYING
 *                                                                                           ├─► INNER_HEAD ◄─► EXCHANGE
 *                                                                                           └─► TLS_CLIENT ─►
 * INNER_HEAD
 *
 * (of intercepted TLS the first request that is allowed goes from INNER_HEAD by way of TLS_SERVER to EXCHANGE),
 * and from each to LINGERING (our last words are read) or CLOSED. Whatever happens, a readable socket, a timer, an
 * answer of the resolver, ends in session_step(): the state's step function does what can be done, as often as that
 * leads to another state, and then the state's want function alone says what the loop waits for. Only session_step()
 * and session_cut() free a session.
 */

#define LINGER_MS        2000u
#define STEPS_MAX        64u /* states in one turn of the loop: a pipelining client does not hold up the others */
#define HANG_UP_CHECK_NS (2 * NSEC_PER_SEC)
#define AUDIT_PAUSE_NS   (5 * NSEC_PER_MSEC)

struct state {
        const char *name;
        void (*step)(struct session *s);
        void (*want)(struct session *s);
        bool idles; /* its time limit begins anew with each byte */
        bool asks;  /* it takes a request, which will be recorded */
};

static void step_greeting(struct session *s);
static void step_lingering(struct session *s);
static void step_closed(struct session *s);
static void want_client(struct session *s);
static void want_held(struct session *s);
static void want_request(struct session *s);
static void want_server(struct session *s);
static void want_nothing(struct session *s);

static const struct state states[] = {
        [SESSION_GREETING] = {"greeting", step_greeting, want_client, false, false},
        [SESSION_SOCKS5] = {"socks5", session_step_socks5, want_client, false, true},
        [SESSION_HEAD] = {"head", session_step_head, want_request, false, true},
        [SESSION_RESOLVING] = {"resolving", session_step_opening, want_held, false, false},
        [SESSION_DIALLING] = {"dialling", session_step_opening, want_held, false, false},
        [SESSION_RECORDING] = {"recording", session_step_opening, want_held, false, false},
        [SESSION_FIRST_BYTES] = {"first bytes", session_step_first_bytes, want_client, false, false},
        [SESSION_TLS_CLIENT] = {"client's TLS", session_step_tls_client, session_want_tls_client, false, false},
        [SESSION_TLS_SERVER] = {"server's TLS", session_step_tls_server, want_server, false, false},
        [SESSION_INNER_HEAD] = {"inner head", session_step_inner_head, want_request, false, true},
        [SESSION_EXCHANGE] = {"exchange", session_step_exchange, session_want_exchange, true, false},
        [SESSION_RELAYING] = {"relaying", session_step_relaying, session_want_relaying, true, false},
        [SESSION_LINGERING] = {"lingering", step_lingering, want_client, false, false},
        [SESSION_CLOSED] = {"closed", step_closed, want_nothing, false, false},
};
static_assert(sizeof(states) / sizeof(*states) == SESSION_STATES_, "a state has no row");

/* Sessions are counted over all workers, so that a record's number means one session of the broker. */
static uint64_t next_id(void)
{
        static atomic_uint_fast64_t sessions;

        return atomic_fetch_add_explicit(&sessions, 1, memory_order_relaxed) + 1;
}

static struct worker_settings *settings_of(const struct session *s)
{
        return s->vm->context->settings;
}

void session_set_deadline(struct session *s, uint64_t timeout_ms)
{
        s->deadline_ns = clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC;
}

/* The one place where the state changes. What a state begins with is set here. */
void session_set_state(struct session *s, enum session_state state)
{
        const struct worker_settings *settings = settings_of(s);
        uint64_t deadline_ns = s->state == SESSION_GREETING ? s->deadline_ns : 0;

        if (s->state == SESSION_CLOSED || (s->state == SESSION_LINGERING && state != SESSION_CLOSED))
                return; /* an end is final */
        s->state = state;
        s->moved = true;
        s->deadline_ns = 0;
        s->rate_wait_ns = 0;
        switch (state) {
        case SESSION_GREETING: session_set_deadline(s, settings->request_head_ms); break;
        case SESSION_FIRST_BYTES:
        case SESSION_TLS_CLIENT: session_set_deadline(s, settings->client_hello_ms); break;
        case SESSION_TLS_SERVER: session_set_deadline(s, settings->connect_ms); break;
        case SESSION_HEAD:
        case SESSION_INNER_HEAD:
                if (deadline_ns)
                        s->deadline_ns = deadline_ns; /* the first byte does not begin the time anew */
                else
                        session_set_deadline(s, s->requests_seen ? settings->idle_ms : settings->request_head_ms);
                break;
        case SESSION_SOCKS5: s->deadline_ns = deadline_ns; break;
        case SESSION_EXCHANGE:
        case SESSION_RELAYING: s->active_ns = clock_monotonic_ns(); break;
        case SESSION_LINGERING:
                session_exchange_free(s);
                session_close_server(s);
                session_drop_head(s);
                session_set_deadline(s, settings->idle_ms); /* to read our last words; step_lingering() shortens it */
                break;
        case SESSION_RESOLVING:
        case SESSION_DIALLING:
        case SESSION_RECORDING:
        case SESSION_CLOSED:
        case SESSION_STATES_: break;
        }
}

void session_moved(struct session *s, uint64_t up, uint64_t down)
{
        if (!up && !down)
                return;
        s->active_ns = clock_monotonic_ns();
        s->bytes_up += up;
        s->bytes_down += down;
        s->vm->stats.bytes_up += up;
        s->vm->stats.bytes_down += down;
}

static void no_memory(struct session *s)
{
        vm_warn(s->vm, "its connections hold as much memory as they may, one is closed");
        session_set_state(s, SESSION_CLOSED);
}

void *session_alloc(struct session *s, size_t n)
{
        void *p = NULL;

        if (budget_charge(&s->vm->budget, n)) {
                p = calloc(1, n);
                if (!p)
                        budget_return(&s->vm->budget, n);
        }
        if (!p)
                no_memory(s);
        return p;
}

void session_release(struct session *s, void *p, size_t n)
{
        if (!p)
                return;
        budget_return(&s->vm->budget, n);
        free(p);
}

void session_drop_head(struct session *s)
{
        session_release(s, s->head, sizeof(*s->head));
        s->head = NULL;
        s->request.method = s->request.path = NULL;
}

bool session_read_client(struct session *s, size_t held_max)
{
        size_t used = buffer_used(&s->client.in);
        size_t room = used < held_max ? held_max - used : 0;

        if (peer_fill(&s->client, room < SESSION_CHUNK_BYTES ? room : SESSION_CHUNK_BYTES) >= 0)
                return true;
        no_memory(s);
        return false;
}

void session_wake(void *session)
{
        struct session *s = session;

        event_active(&s->timer, 0, 0);
}

void session_linger(struct session *s)
{
        session_set_state(s, SESSION_LINGERING);
}

static void step_greeting(struct session *s)
{
        if (!session_read_client(s, SESSION_CHUNK_BYTES))
                return;
        if (!buffer_used(&s->client.in)) {
                if (s->client.eof)
                        session_set_state(s, SESSION_CLOSED);
                return;
        }
        if (*buffer_data(&s->client.in) != SOCKS5_VERSION) {
                s->speaks = SPEAKS_HTTP;
                session_set_state(s, SESSION_HEAD);
                return;
        }
        s->socks5 = session_alloc(s, sizeof(*s->socks5));
        if (!s->socks5)
                return;
        s->speaks = SPEAKS_SOCKS5;
        session_set_state(s, SESSION_SOCKS5);
}

/*
 * Closing with bytes unread would be a reset that may take our last words with it: they are written, our FIN follows,
 * and what the client still sends is dropped until it closes too or the time is up.
 */
static void step_lingering(struct session *s)
{
        (void)peer_flush(&s->client);
        if (!buffer_used(&s->client.out) && !s->client.finished && peer_finish(&s->client))
                session_set_deadline(s, LINGER_MS);
        buffer_done(&s->client.in);
        (void)peer_fill(&s->client, SESSION_CHUNK_BYTES);
        buffer_done(&s->client.in);
        if (s->client.broken || (s->client.eof && s->client.finished))
                session_set_state(s, SESSION_CLOSED);
}

static void step_closed(struct session *s)
{
        (void)s;
}

static void want_client(struct session *s)
{
        peer_want(&s->client, !s->rate_wait_ns, buffer_used(&s->client.out));
        peer_want(&s->server, false, buffer_used(&s->server.out));
}

/* On the way to the server: what is pipelined is held, up to a bound; the end is noticed. */
static void want_held(struct session *s)
{
        peer_want(&s->client, buffer_used(&s->client.in) < SESSION_HELD_MAX, buffer_used(&s->client.out));
}

/* Where it may have nothing to say; in clear text before the first request that is the exchange's to judge. */
bool session_watches_server(const struct session *s)
{
        return s->requests_seen || s->inspected;
}

/* Between requests the server's end is noticed, too. */
static void want_request(struct session *s)
{
        want_client(s);
        peer_want(&s->server, session_watches_server(s) && !s->rate_wait_ns, buffer_used(&s->server.out));
}

static void want_server(struct session *s)
{
        want_held(s);
        peer_want(&s->server, true, buffer_used(&s->server.out));
}

static void want_nothing(struct session *s)
{
        (void)s;
}

static uint64_t limit_ns(const struct session *s)
{
        if (states[s->state].idles)
                return s->active_ns + settings_of(s)->idle_ms * NSEC_PER_MSEC;
        return s->deadline_ns;
}

static void arm(struct session *s)
{
        uint64_t now_ns = clock_monotonic_ns();
        uint64_t next_ns = limit_ns(s) ? limit_ns(s) : UINT64_MAX;

        if (s->rate_wait_ns && now_ns + s->rate_wait_ns < next_ns)
                next_ns = now_ns + s->rate_wait_ns;
        /* Of a client that is not read, or has half-closed, no event tells when it goes away altogether. */
        if ((s->client.eof || !s->client.wants_read) && s->state != SESSION_LINGERING &&
                now_ns + HANG_UP_CHECK_NS < next_ns)
                next_ns = now_ns + HANG_UP_CHECK_NS;
        if (next_ns == UINT64_MAX || (s->armed_ns && s->armed_ns <= next_ns))
                return; /* firing too early does no harm */

        uint64_t wait_us = next_ns > now_ns ? (next_ns - now_ns + NSEC_PER_USEC - 1) / NSEC_PER_USEC : 0;
        struct timeval tv = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};

        s->armed_ns = next_ns;
        event_add(&s->timer, &tv);
}

static void session_free(struct session *s)
{
        session_exchange_free(s);
        session_close_server(s);
        session_drop_head(s);
        session_release(s, s->kept, s->kept_bytes);
        session_release(s, s->socks5, sizeof(*s->socks5));
        session_release(s, s->hello, sizeof(*s->hello));
        event_del(&s->timer);
        (void)peer_flush(&s->client);
        peer_close(&s->client);
        session_inspected_done(s);
        LIST_REMOVE(s, in_vm);
        s->vm->sessions_n--;
        budget_return(&s->vm->budget, sizeof(*s));
        free(s);
}

/* Guests do not ask for more than can be written down: the next request stays where it is while the log is behind. */
static bool waits_for_audit(struct session *s)
{
        if (!states[s->state].asks)
                return false;
        s->rate_wait_ns = audit_is_behind(s->vm->context->audit) ? AUDIT_PAUSE_NS : 0;
        return s->rate_wait_ns != 0;
}

void session_step(struct session *s)
{
        unsigned steps = 0;

        if (s->stepping)
                return;
        s->stepping = true;
        do {
                s->moved = false;
                if (waits_for_audit(s))
                        break;
                states[s->state].step(s);
        } while (s->moved && s->state != SESSION_CLOSED && ++steps < STEPS_MAX);
        s->stepping = false;
        if (s->state == SESSION_CLOSED) {
                session_free(s);
                return;
        }
        states[s->state].want(s);
        arm(s);
        if (s->moved)
                event_active(&s->timer, 0, 0);
}

static void on_peer(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        session_step(userdata);
}

/* The state's time is up. Who was in the middle of a head is told; else there is nothing to say. */
static void time_is_up(struct session *s)
{
        bool in_head = s->state == SESSION_HEAD || s->state == SESSION_INNER_HEAD;

        if ((s->state == SESSION_EXCHANGE && !s->exchange->answered) || s->state == SESSION_TLS_SERVER) {
                session_deny(s, REASON_UPSTREAM_TIMEOUT, NULL);
                return;
        }
        if (in_head && s->head && http1_request_begun(s->head) && !reply_head_timeout(&s->client.out)) {
                session_linger(s);
                return;
        }
        session_set_state(s, s->state == SESSION_LINGERING ? SESSION_CLOSED : SESSION_LINGERING);
}

static void on_timer(evutil_socket_t fd, short what, void *userdata)
{
        struct session *s = userdata;

        (void)fd;
        (void)what;
        s->armed_ns = 0;
        s->rate_wait_ns = 0;
        if (limit_ns(s) && clock_monotonic_ns() >= limit_ns(s))
                time_is_up(s);
        else if (s->state != SESSION_RELAYING && peer_hung_up(&s->client))
                session_set_state(s, SESSION_CLOSED); /* what a relay still holds is on its way */
        session_step(s);
}

int session_new(struct vm *vm, int fd)
{
        _cleanup_close_ int mine = fd;

        if (!budget_charge(&vm->budget, sizeof(struct session)))
                return -ENOBUFS;

        struct session *s = calloc(1, sizeof(*s));
        if (!s) {
                budget_return(&vm->budget, sizeof(*s));
                return -ENOMEM;
        }
        s->vm = vm;
        s->id = next_id();
        s->decision.rule = s->counted_rule = DECISION_NO_RULE;
        peer_init(&s->client, &vm->budget);
        peer_init(&s->server, &vm->budget);
        event_assign(&s->timer, vm->context->base, -1, 0, on_timer, s);
        peer_attach(&s->client, vm->context->base, steal_fd(&mine), on_peer, s);
        LIST_INSERT_HEAD(&vm->sessions, s, in_vm);
        vm->sessions_n++;
        vm->stats.sessions_total++;
        session_set_state(s, SESSION_GREETING);
        session_step(s);
        return 0;
}

struct session *session_next(struct session *s)
{
        return LIST_NEXT(s, in_vm);
}

/* Is there, or will there be, a connection to a server that policy has allowed? */
static bool is_open(const struct session *s)
{
        return s->server.fd >= 0 || s->state == SESSION_RESOLVING || s->state == SESSION_DIALLING;
}

void session_cut(struct session *s, enum reason reason)
{
        if (reason != REASON_ALLOWED && is_open(s)) {
                struct audit_record record;

                session_record(s, AUDIT_EGRESS_DENY, &record);
                record.has_decision = true;
                record.reason = reason;
                record.rule = reason == s->decision.reason ? s->decision.rule : DECISION_NO_RULE;
                record.detail = "a live connection was cut";
                session_submit(s, &record);
                s->vm->stats.denied_total++;
        }
        session_set_state(s, SESSION_CLOSED);
        session_step(s);
}

void session_leave_limits(struct session *s)
{
        relay_leave_limits(&s->relay);
        session_exchange_leave_limits(s);
        if (!s->counted)
                return;
        limits_leave(&s->vm->limits, s->counted_rule);
        s->counted = false;
        s->recount = true;
}

void session_judge_again(struct session *s)
{
        if (!s->recount)
                return; /* nothing of it was allowed yet, so nothing can have changed */
        s->recount = false;

        enum reason reason = session_decide(s);
        if (reason == REASON_ALLOWED)
                reason = session_judge_address(s);
        if (reason != REASON_ALLOWED) {
                session_cut(s, reason);
                return;
        }
        limits_enter_anyway(&s->vm->limits, s->decision.rule);
        s->counted = true;
        s->counted_rule = s->relay.rule = s->decision.rule;
        session_step(s); /* other limits, other waits */
}

void session_drain(struct session *s)
{
        bool in_head = s->state == SESSION_GREETING || s->state == SESSION_HEAD || s->state == SESSION_INNER_HEAD;

        if (in_head && !buffer_used(&s->client.in) && !s->head)
                session_linger(s);
        session_step(s);
}
