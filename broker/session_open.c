/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker/session_private.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/*
 * From a checked request to a server: decided, resolved only if allowed, every address judged, exactly those dialled,
 * and written down before the first byte goes there. Each step may end in session_deny(). While it lasts the client is
 * read ahead, so that its end is noticed.
 */

static struct worker_settings *settings_of(const struct session *s)
{
        return s->vm->context->settings;
}

/* The operator's own service that the request names, or NULL. */
static const struct worker_service *service_of(const struct session *s)
{
        return vm_find_service(s->vm, &s->request.host, s->request.port);
}

/*
 * Where only an intercepted request could be decided, and TLS is what comes or all that may come, the answer is no
 * unless it can be intercepted. What is opaque already cannot.
 */
static bool lacks_inspection(const struct session *s)
{
        bool allowed[PROTOCOL_MAX_] = {0};

        if (!s->decision.inspect)
                return false;
        if (vm_may_inspect(s->vm) && (s->inspected || s->state != SESSION_RELAYING))
                return false;
        if (s->request.protocol != PROTOCOL_AUTO)
                return s->request.protocol == PROTOCOL_TLS;
        policy_protocols(s->vm->policy, &s->request, allowed);
        return !allowed[PROTOCOL_HTTP] && !allowed[PROTOCOL_TCP];
}

enum reason session_decide(struct session *s)
{
        enum reason reason = vm_gate(s->vm);

        s->decision = (struct decision){.reason = reason, .rule = DECISION_NO_RULE};
        if (reason != REASON_ALLOWED)
                return reason;
        policy_decide(s->vm->policy, &settings_of(s)->floor, &s->request, service_of(s) != NULL, &s->decision);
        if (s->decision.reason == REASON_ALLOWED && lacks_inspection(s))
                s->decision = (struct decision){.reason = REASON_INSPECTION_REQUIRED, .rule = DECISION_NO_RULE};
        return s->decision.reason;
}

static enum reason take_place(struct session *s)
{
        enum reason reason = limits_enter(&s->vm->limits, s->decision.rule);

        if (reason != REASON_ALLOWED)
                return reason;
        s->counted = true;
        s->counted_rule = s->decision.rule;
        return REASON_ALLOWED;
}

static void give_up_place(struct session *s)
{
        if (s->counted)
                limits_leave(&s->vm->limits, s->counted_rule);
        s->counted = false;
}

enum reason session_decide_again(struct session *s)
{
        enum reason reason = session_decide(s);

        if (reason != REASON_ALLOWED || (s->counted && s->decision.rule == s->counted_rule))
                return reason;
        give_up_place(s);
        return take_place(s);
}

enum reason session_count_request(struct session *s)
{
        uint64_t wait_ns = 0;
        enum reason reason = limits_request(&s->vm->limits, s->decision.rule, clock_monotonic_ns(), &wait_ns);

        if (reason == REASON_RATE_LIMITED)
                s->retry_after_s = (wait_ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
        return reason;
}

static enum reason judge(const struct session *s, const struct dns_address *address, const char **ret_floor)
{
        struct hostname host;

        hostname_from_address((enum host_kind)address->kind, address->bytes, &host);
        return policy_decide_addresses(&settings_of(s)->floor, &host, 1, ret_floor);
}

enum reason session_judge_address(const struct session *s)
{
        const char *floor;

        if (!s->has_address || service_of(s))
                return REASON_ALLOWED;
        return judge(s, &s->address, &floor);
}

void session_open_cancel(struct session *s)
{
        if (s->resolving)
                resolver_cancel(&s->waiter);
        s->resolving = false;
        dialer_free(s->dialer);
        s->dialer = NULL;
        session_release(s, s->addresses, s->addresses_n * sizeof(*s->addresses));
        s->addresses = NULL;
        s->addresses_n = 0;
}

/* An audit record that a session waits for. It outlives the session if that ends first; then nobody is told. */
struct audit_ticket {
        struct mail mail;
        struct worker_context *context;
        struct session *session;
        int r;
};

void session_close_server(struct session *s)
{
        session_open_cancel(s);
        if (s->ticket)
                s->ticket->session = NULL;
        s->ticket = NULL;
        relay_done(&s->relay);
        session_record_close(s);
        give_up_place(s);
        peer_close(&s->server);
        s->has_address = false;
        s->server_used = false;
}

static void opened(struct session *s)
{
        s->recorded = true;
        s->vm->stats.allowed_total++;
        s->opened_ns = clock_monotonic_ns();
        session_release(s, s->addresses, s->addresses_n * sizeof(*s->addresses));
        s->addresses = NULL;
        s->addresses_n = 0;
        if (s->socks5)
                session_socks5_opened(s);
        else
                session_http_opened(s);
}

static void not_recorded(struct session *s, int error)
{
        log_write_errno(LOG_LEVEL_ERROR, error, "vm %s: the audit log takes no record", s->vm->name);
        if (settings_of(s)->audit_required)
                session_deny(s, REASON_AUDIT_UNAVAILABLE, NULL);
        else
                opened(s);
}

/* On the worker's thread again. */
static void on_ticket_back(struct mail *m)
{
        struct audit_ticket *ticket = (struct audit_ticket *)(void *)m;
        struct session *s = ticket->session;
        int r = ticket->r;

        ticket->context->audits_pending--;
        free(ticket);
        if (!s)
                return;
        s->ticket = NULL;
        if (r < 0)
                not_recorded(s, r);
        else
                opened(s);
        session_step(s);
}

/* On the audit's thread. */
static void on_recorded(void *userdata, int r)
{
        struct audit_ticket *ticket = userdata;

        ticket->r = r;
        mailbox_post(ticket->context->mailbox, &ticket->mail);
}

static void record_open(struct session *s)
{
        struct audit_ticket *ticket = calloc(1, sizeof(*ticket));
        struct audit_record record;
        struct hostname address;

        session_set_state(s, SESSION_RECORDING);
        if (!ticket) {
                not_recorded(s, -ENOMEM);
                return;
        }
        *ticket = (struct audit_ticket){.mail.open = on_ticket_back, .context = s->vm->context, .session = s};
        session_record(s, AUDIT_EGRESS_OPEN, &record);
        record.has_decision = true;
        record.reason = REASON_ALLOWED;
        record.rule = s->decision.rule;
        if (s->has_address) {
                hostname_from_address((enum host_kind)s->address.kind, s->address.bytes, &address);
                record.address = address.text;
        }

        int r = audit_submit(s->vm->context->audit, &record, on_recorded, ticket);
        if (r == 0) {
                s->vm->context->audits_pending++;
                s->ticket = ticket;
                return;
        }
        free(ticket);
        if (r < 0)
                not_recorded(s, r);
        else
                opened(s);
}

static void on_server(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        session_step(userdata);
}

/* An operator's service whose socket is one of ours, under whatever path: each connection to it would make the next. */
static bool is_own_listener(const struct session *s, int fd)
{
        pid_t own_pid = settings_of(s)->own_pid;
        struct ucred listener = {0};
        socklen_t n = sizeof(listener);

        return own_pid && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &n) && listener.pid == own_pid;
}

static void refuse_own_listener(struct session *s, int fd)
{
        log_error("service %s: its endpoint is the broker's own", s->request.host.text);
        close_fd(fd);
        session_deny(s, REASON_UPSTREAM_UNREACHABLE, "the service's endpoint is the broker itself");
}

static void on_dialled(void *userdata, enum reason reason, int fd, const struct dns_address *address)
{
        struct session *s = userdata;

        s->has_address = address != NULL;
        if (address)
                s->address = *address;
        dialer_free(s->dialer); /* takes *address with it */
        s->dialer = NULL;
        if (reason != REASON_ALLOWED) {
                session_deny(s, reason, NULL);
        } else if (!address && is_own_listener(s, fd)) {
                refuse_own_listener(s, fd);
        } else {
                peer_attach(&s->server, s->vm->context->base, fd, on_server, s);
                record_open(s);
        }
        session_step(s);
}

static void dial(struct session *s)
{
        session_set_state(s, SESSION_DIALLING);

        int r = dialer_start(s->vm->context->base, s->addresses, s->addresses_n, s->request.port,
                settings_of(s)->connect_ms, on_dialled, s, &s->dialer);
        if (r < 0)
                session_set_state(s, SESSION_CLOSED);
}

static void take_addresses(struct session *s, const struct dns_address *addresses, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char *floor = NULL;
                enum reason reason = judge(s, &addresses[i], &floor);

                if (reason != REASON_ALLOWED) {
                        s->decision = (struct decision){.reason = reason, .rule = DECISION_NO_RULE, .floor = floor};
                        session_deny(s, reason, NULL);
                        return;
                }
        }
        s->addresses = session_alloc(s, n * sizeof(*addresses));
        if (!s->addresses)
                return;
        memcpy(s->addresses, addresses, n * sizeof(*addresses));
        s->addresses_n = n;
        dial(s);
}

static void take_answer(struct session *s, const struct dns_answer *answer)
{
        if (answer->reason != REASON_ALLOWED)
                session_deny(s, answer->reason, NULL);
        else
                take_addresses(s, answer->addresses, answer->addresses_n);
}

static void on_resolved(struct resolver_waiter *w, const struct dns_answer *answer)
{
        struct session *s = (struct session *)(void *)((char *)w - offsetof(struct session, waiter));

        s->resolving = false;
        take_answer(s, answer);
        session_step(s);
}

/* Does the guest choose the name, or the policy? */
static bool is_made_up(const struct session *s)
{
        int rule = s->decision.rule;

        return rule < 0 || s->vm->policy->rules[rule].pattern.kind != PATTERN_EXACT;
}

/* A look-up tells the name to whoever serves it: a guest that makes names up must not say much that way. */
static bool may_look_up(struct session *s)
{
        struct name_budget *budget = &s->vm->lookups;
        uint64_t now_ns = clock_monotonic_ns();
        bool first;

        if (!is_made_up(s) || resolver_knows(s->vm->context->resolver, &s->request.host) ||
                name_budget_take(budget, &s->request.host, now_ns, &first))
                return true;
        s->retry_after_s = name_budget_wait_ns(budget, now_ns) / NSEC_PER_SEC + 1;
        session_deny(s, REASON_RATE_LIMITED, "this VM has had more names looked up than one may in a minute");
        return false;
}

static void resolve(struct session *s)
{
        const struct dns_answer *answer;

        session_set_state(s, SESSION_RESOLVING);
        if (!may_look_up(s))
                return;
        s->waiter.done = on_resolved;

        int r = resolver_ask(s->vm->context->resolver, &s->request.host, &s->waiter, &answer);
        if (r == RESOLVER_E_PENDING)
                s->resolving = true;
        else if (r == 0)
                take_answer(s, answer);
        else
                session_set_state(s, SESSION_CLOSED);
}

/* The endpoint is the operator's word: neither resolved nor judged. */
static void dial_service(struct session *s, const struct worker_service *service)
{
        struct event_base *base = s->vm->context->base;
        uint64_t timeout_ms = settings_of(s)->connect_ms;
        struct hostname host;
        uint16_t port;
        int r;

        session_set_state(s, SESSION_DIALLING);
        if (!strncmp(service->connect, "unix:", 5)) {
                r = dialer_start_unix(base, service->connect + 5, timeout_ms, on_dialled, s, &s->dialer);
        } else {
                struct dns_address address = {0};

                r = hostname_parse_with_port(service->connect, strlen(service->connect), &host, &port);
                if (r == 0 && host.kind != HOST_NAME) {
                        address.kind = (uint8_t)host.kind;
                        memcpy(address.bytes, host.address, sizeof(address.bytes));
                        r = dialer_start(base, &address, 1, port, timeout_ms, on_dialled, s, &s->dialer);
                } else {
                        r = -EINVAL;
                }
        }
        if (r) {
                log_error("service %s: cannot dial %s", service->name, service->connect);
                session_deny(s, REASON_UPSTREAM_UNREACHABLE, NULL);
        }
}

void session_open(struct session *s)
{
        enum reason reason = session_decide_again(s);

        assert(s->server.fd < 0);
        if (reason == REASON_ALLOWED)
                reason = session_count_request(s);
        if (reason != REASON_ALLOWED) {
                give_up_place(s);
                session_deny(s, reason, NULL);
                return;
        }

        const struct worker_service *service = service_of(s);
        if (service) {
                dial_service(s, service);
        } else if (s->request.host.kind == HOST_NAME) {
                resolve(s);
        } else {
                struct dns_address address = {.kind = (uint8_t)s->request.host.kind};

                memcpy(address.bytes, s->request.host.address, sizeof(address.bytes));
                take_addresses(s, &address, 1);
        }
}

void session_step_opening(struct session *s)
{
        if (!session_read_client(s, SESSION_HELD_MAX))
                return;
        if (s->client.eof && peer_hung_up(&s->client))
                session_set_state(s, SESSION_CLOSED);
}
