/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "broker/peer.h"
#include "broker/policy.h"
#include "broker/reply.h"
#include "broker/vm.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/limits.h"

#define ANSWERS_HELD_MAX (64u * 1024u) /* then the guest is to read first */

static_assert(POLICY_EXPLAIN_BYTES <= WB_SERVICE_DETAIL_MAX, "an explanation fits an answer");

struct service {
        LIST_ENTRY(service) in_vm;
        struct vm *vm;
        struct peer peer;
        struct frame_reader reader; /* a frame's bytes at most: charged with the struct */
};

#define CHARGED_BYTES (sizeof(struct service) + 2 * WB_SERVICE_FRAME_MAX_BYTES)

/* ---- the decision */

struct verdict {
        struct request request;
        bool has_host;
        struct decision decision;
        char detail[POLICY_EXPLAIN_BYTES];
};

static void refuse(struct verdict *v, enum reason reason)
{
        v->decision = (struct decision){.reason = reason, .rule = DECISION_NO_RULE};
}

/* *ret_record: is it worth a record? What the budget refuses is recorded once a minute. */
static void decide(struct vm *vm, const char *name, struct verdict *v, bool *ret_record)
{
        const struct worker_settings *settings = vm->context->settings;
        enum reason gate = vm_gate(vm);

        *v = (struct verdict){.request = {.via = VIA_DNS}};
        *ret_record = true;
        v->has_host = hostname_parse(name, strlen(name), &v->request.host) == 0;
        if (!name_budget_take(&vm->names, v->has_host ? &v->request.host : NULL, clock_monotonic_ns(), ret_record))
                refuse(v, REASON_RATE_LIMITED);
        else if (gate != REASON_ALLOWED)
                refuse(v, gate);
        else if (!v->has_host)
                refuse(v, REASON_MALFORMED_REQUEST);
        else
                policy_decide(vm->policy, &settings->floor, &v->request,
                        vm_find_service(vm, &v->request.host, 0) != NULL, &v->decision);
}

static void explain(const struct vm *vm, struct verdict *v)
{
        enum reason reason = v->decision.reason;

        if (reason == REASON_ALLOWED)
                return;
        if (reason == REASON_RATE_LIMITED)
                (void)snprintf(v->detail, sizeof(v->detail),
                        "This VM asks for too many names: %u questions about %u different names are answered in a "
                        "minute. Try again in the next one.",
                        NAME_BUDGET_QUERIES, NAME_BUDGET_NAMES);
        if (v->has_host && reason <= REASON_FLOOR_ADDRESS)
                policy_explain(vm->policy, &v->request, &v->decision, v->detail, sizeof(v->detail));
        if (!v->detail[0])
                (void)snprintf(v->detail, sizeof(v->detail), "%s", reply_detail(reason));
}

/* What may not be recorded is not allowed, where the operator says so. */
static void record(struct vm *vm, struct verdict *v)
{
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_DNS);
        int r;

        record.vm = vm->name;
        record.generation = vm->generation;
        record.has_decision = true;
        record.reason = v->decision.reason;
        record.rule = v->decision.rule;
        record.has_via = true;
        record.via = VIA_DNS;
        record.host = v->has_host ? v->request.host.text : NULL;
        record.policy_sha256 = vm->policy->sha256;
        record.detail = v->detail[0] ? v->detail : NULL;
        r = audit_submit(vm->context->audit, &record, NULL, NULL);
        if (r >= 0)
                return;
        log_write_errno(LOG_LEVEL_ERROR, r, "vm %s: an audit record is lost", vm->name);
        if (vm->context->settings->audit_required && v->decision.reason == REASON_ALLOWED) {
                refuse(v, REASON_AUDIT_UNAVAILABLE);
                explain(vm, v);
        }
}

static int answer(struct service *s, uint32_t number, const struct verdict *v)
{
        Wb__NameAnswer name_answer = WB__NAME_ANSWER__INIT;
        Wb__ServiceAnswer m = WB__SERVICE_ANSWER__INIT;
        _cleanup_free_ uint8_t *frame = NULL;
        size_t n;
        int r;

        name_answer.allowed = v->decision.reason == REASON_ALLOWED;
        name_answer.reason = (char *)(uintptr_t)reason_info(v->decision.reason)->name;
        name_answer.detail = (char *)(uintptr_t)v->detail;
        m.number = number;
        m.body_case = WB__SERVICE_ANSWER__BODY_NAME_ANSWER;
        m.name_answer = &name_answer;
        r = codec_pack_service_answer(&m, &frame, &n);
        return r < 0 ? r : buffer_append(&s->peer.out, frame, n);
}

static int take_query(struct service *s, uint32_t number, const Wb__NameQuery *query)
{
        struct verdict v;
        bool worth_record;

        decide(s->vm, query->name, &v, &worth_record);
        explain(s->vm, &v);
        if (worth_record)
                record(s->vm, &v);
        if (v.decision.reason != REASON_ALLOWED)
                s->vm->stats.denied_total++;
        return answer(s, number, &v);
}

/* Texts of the codec have no control bytes, so that none forges a line. */
static void take_event(struct service *s, const Wb__ServiceEvent *event)
{
        bool first;

        if (name_budget_take(&s->vm->names, NULL, clock_monotonic_ns(), &first))
                log_info("vm %s: its agent says %s: %.200s", s->vm->name, event->name, event->detail);
}

/* ---- the conversation */

static int take_frame(struct service *s, const uint8_t *payload, size_t n)
{
        Wb__ServiceRequest *m;
        int r = codec_unpack_service_request(payload, n, &m);

        if (r != 0)
                return -EBADMSG;
        if (m->body_case == WB__SERVICE_REQUEST__BODY_NAME_QUERY)
                r = take_query(s, m->number, m->name_query);
        else
                take_event(s, m->event);
        codec_free_service_request(m);
        return r;
}

/* What has come, as long as the guest reads what it is answered. 0 or a negative errno: the conversation ends. */
static int take_input(struct service *s)
{
        const uint8_t *p = buffer_data(&s->peer.in), *payload;
        size_t n = buffer_used(&s->peer.in), before = n, payload_n;
        int r = 0;

        while (r == 0 && n) {
                r = frame_read(&s->reader, &p, &n, &payload, &payload_n);
                if (r == 0)
                        r = payload_n > WB_SERVICE_FRAME_MAX_BYTES ? -EMSGSIZE : take_frame(s, payload, payload_n);
        }
        if (r == FRAME_E_MORE)
                r = s->reader.used > FRAME_HEADER_BYTES + WB_SERVICE_FRAME_MAX_BYTES ? -EMSGSIZE : 0;
        buffer_consume(&s->peer.in, before - n);
        return r;
}

static void on_event(evutil_socket_t fd, short what, void *userdata)
{
        struct service *s = userdata;
        int r = 0;

        (void)fd;
        (void)what;
        (void)peer_flush(&s->peer);
        if (buffer_used(&s->peer.out) < ANSWERS_HELD_MAX && peer_fill(&s->peer, WB_SERVICE_FRAME_MAX_BYTES) < 0)
                r = -ENOBUFS;
        if (r == 0)
                r = take_input(s);
        (void)peer_flush(&s->peer);
        if (r < 0)
                log_write_errno(
                        LOG_LEVEL_WARNING, r, "vm %s: a conversation of port %u ends", s->vm->name, WB_PORT_SERVICE);
        if (r < 0 || s->peer.broken || (s->peer.eof && !buffer_used(&s->peer.out))) {
                service_free(s);
                return;
        }
        peer_want(&s->peer, !s->peer.eof && buffer_used(&s->peer.out) < ANSWERS_HELD_MAX, buffer_used(&s->peer.out));
}

int service_new(struct vm *vm, int fd)
{
        _cleanup_close_ int mine = fd;
        struct service *s;

        if (!budget_charge(&vm->budget, CHARGED_BYTES))
                return -ENOBUFS;
        s = calloc(1, sizeof(*s));
        if (!s) {
                budget_return(&vm->budget, CHARGED_BYTES);
                return -ENOMEM;
        }
        s->vm = vm;
        peer_init(&s->peer, &vm->budget);
        peer_attach(&s->peer, vm->context->base, steal_fd(&mine), on_event, s);
        LIST_INSERT_HEAD(&vm->services, s, in_vm);
        vm->services_n++;
        peer_want(&s->peer, true, false);
        return 0;
}

void service_free(struct service *s)
{
        peer_close(&s->peer);
        frame_reader_done(&s->reader);
        LIST_REMOVE(s, in_vm);
        s->vm->services_n--;
        budget_return(&s->vm->budget, CHARGED_BYTES);
        free(s);
}
