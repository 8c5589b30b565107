/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/activation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "broker/agent_dial.h"
#include "broker/ca.h"
#include "broker/clock_check.h"
#include "broker/interception.h"
#include "broker/proof.h"
#include "broker/secret_delivery.h"
#include "broker/vm_secrets.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/client/client.h"
#include "proto/wire/limits.h"

/* How long an agent may take to say what it is, to activate (it bounds each hook at 10 s), to quiesce. */
#define INFO_LIMIT_S      10
#define ACTIVATE_LIMIT_S  400
#define QUIESCE_LIMIT_S   60
#define STEPS_MAX         64u
#define NETWORK_PORTS_MAX 256u

/* Two connections for an activation, one for a quiesce: one connection is one conversation. */
enum stage {
        STAGE_INFO, /* the agent's last generation is asked for */
        STAGE_MAIN,
};

struct vm_conversation {
        struct vm_entry *entry;
        enum vm_wish wish;
        enum stage stage;
        struct control_request *request;
        struct agent_dial dial;
        struct event *limit_event;
        struct client *client;
        struct activation_secrets *secrets; /* until they are sent */
        json_t *steps;
        uint64_t generation; /* that this activation gives */
        enum reason fault;   /* that a failure has: REASON_NOT_READY unless it is another */
};

static void conversation_free(struct vm_conversation *v)
{
        v->entry->conversation = NULL;
        secret_delivery_resume(v->entry);
        agent_dial_done(&v->dial);
        if (v->limit_event)
                event_free(v->limit_event);
        client_free(v->client);
        activation_secrets_free(v->secrets);
        json_decref(v->steps);
        free(v);
}

/* ---- the end */

static int record_end(struct vm_conversation *v, enum reason reason, const char *detail)
{
        return registry_record(v->entry, v->wish == VM_ACTIVATE ? AUDIT_ACTIVATE : AUDIT_QUIESCE, reason, detail);
}

static void fail(struct vm_conversation *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct vm_conversation *v, const char *format, ...)
{
        struct vm_entry *e = v->entry;
        const char *what = v->wish == VM_ACTIVATE ? "activation" : "quiesce";
        struct control_request *request = v->request;
        char text[512];
        json_t *answer;
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (e->state == VM_ACTIVATING)
                (void)registry_set_state(e, VM_CLOSED, e->generation);
        (void)record_end(v, v->fault, text);
        log_error("VM '%s': %s failed: %s", e->config.name, what, text);
        answer = answer_error("%s failed: %s; egress stays closed", what, text);
        (void)json_object_set(answer, "steps", v->steps);
        (void)json_object_set_new(answer, "reason", json_string(reason_info(v->fault)->name));
        conversation_free(v);
        control_answer(request, answer);
}

static void succeed(struct vm_conversation *v)
{
        struct vm_entry *e = v->entry;
        struct control_request *request = v->request;
        char proof[PROOF_TEXT_BYTES];
        json_t *answer;
        int r;

        proof_print(e, "isolation: ", e->wall.message, proof);
        if (v->wish == VM_ACTIVATE)
                r = registry_record_of(e, v->generation, AUDIT_ACTIVATE, REASON_ALLOWED, proof);
        else
                r = registry_record(e, AUDIT_QUIESCE, REASON_ALLOWED, NULL);
        if (r >= 0 && v->wish == VM_ACTIVATE)
                r = registry_set_state(e, VM_OPEN, v->generation);
        if (r < 0) {
                fail(v, "it cannot be recorded, or egress cannot be opened: %s", strerrordesc_np(-r));
                return;
        }
        if (v->wish == VM_ACTIVATE)
                vm_secrets_activated(e);
        else
                vm_secrets_quiesced(e);
        log_info("VM '%s': %s, generation %llu", e->config.name, v->wish == VM_ACTIVATE ? "activated" : "quiesced",
                (unsigned long long)e->generation);
        answer = json_pack("{s:b, s:I, s:O}", "ok", 1, "generation", (json_int_t)e->generation, "steps", v->steps);
        conversation_free(v);
        control_answer(request, answer);
}

void vm_conversation_cancel(struct vm_entry *e)
{
        struct vm_conversation *v = e->conversation;
        struct control_request *request;

        clock_check_cancel(e);
        if (v) {
                request = v->request;
                conversation_free(v);
                control_answer(request, answer_error("the VM was removed or revoked meanwhile"));
        }
        secret_delivery_cancel(e);
}

static void on_limit(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        fail(userdata, "the agent did not finish in time");
}

/* ---- what the agent says */

static json_t *step_json(const Wb__ActivateStep *step)
{
        json_t *evidence = json_object();

        for (size_t i = 0; i < step->n_evidence; i++)
                (void)json_object_set_new(evidence, step->evidence[i]->name, json_string(step->evidence[i]->value));
        return json_pack("{s:s, s:b, s:s, s:I, s:o}", "name", step->name, "ok", (int)step->ok, "detail", step->detail,
                "duration_ns", (json_int_t)step->duration_ns, "evidence", evidence);
}

static void answer_probe(struct vm_conversation *v, const Wb__ClockProbe *probe)
{
        Wb__ClockSample sample = WB__CLOCK_SAMPLE__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        int r;

        sample.cookie = probe->cookie;
        sample.realtime_ns = clock_realtime_ns();
        m.body_case = WB__TO_AGENT__BODY_CLOCK_SAMPLE;
        m.clock_sample = &sample;
        r = client_send(v->client, &m);
        if (r < 0)
                fail(v, "cannot answer the clock probe: %s", strerrordesc_np(-r));
}

/* What the step that failed said of it. */
static const char *failure_detail(const struct vm_conversation *v, const char *name)
{
        json_t *step;
        size_t i;

        json_array_foreach (v->steps, i, step)
                if (json_is_false(json_object_get(step, "ok")) &&
                        strcmp(json_string_value(json_object_get(step, "name")), name) == 0)
                        return json_string_value(json_object_get(step, "detail"));
        return "";
}

static void take_done(struct vm_conversation *v, const Wb__ActivateDone *done)
{
        if (!done->ok)
                fail(v, "step %s: %s", done->failed_step, failure_detail(v, done->failed_step));
        else if (done->generation != v->generation)
                fail(v, "the agent speaks of generation %llu, not %llu", (unsigned long long)done->generation,
                        (unsigned long long)v->generation);
        else
                succeed(v);
}

static void take_info(struct vm_conversation *v, const Wb__Info *info)
{
        uint64_t last = info->generation > v->entry->generation ? info->generation : v->entry->generation;

        /* Its own fault: a guest that claims the last of all generations can't be activated again. */
        if (last >= INT64_MAX) {
                fail(v, "the agent claims generation %llu", (unsigned long long)last);
                return;
        }
        v->generation = last + 1;
        v->stage = STAGE_MAIN;
        client_free(v->client);
        v->client = NULL;
        agent_dial_start(&v->dial);
}

static void on_message(void *userdata, const Wb__FromAgent *m)
{
        struct vm_conversation *v = userdata;
        bool activating = v->stage == STAGE_MAIN && v->wish == VM_ACTIVATE;

        if (m->body_case == WB__FROM_AGENT__BODY_ERROR)
                fail(v, "the agent answers %s: %s", m->error->reason, m->error->detail);
        else if (v->stage == STAGE_INFO && m->body_case == WB__FROM_AGENT__BODY_INFO)
                take_info(v, m->info);
        else if (activating && m->body_case == WB__FROM_AGENT__BODY_CLOCK_PROBE)
                answer_probe(v, m->clock_probe);
        else if (activating && m->body_case == WB__FROM_AGENT__BODY_ACTIVATE_STEP &&
                 json_array_size(v->steps) < STEPS_MAX)
                (void)json_array_append_new(v->steps, step_json(m->activate_step));
        else if (activating && m->body_case == WB__FROM_AGENT__BODY_ACTIVATE_DONE)
                take_done(v, m->activate_done);
        else if (v->wish == VM_QUIESCE && m->body_case == WB__FROM_AGENT__BODY_OK)
                succeed(v);
        else
                fail(v, "the agent does not keep to the protocol");
}

static void on_closed(void *userdata, int error)
{
        fail(userdata, "the agent closed the conversation%s%s", error < 0 ? ": " : "",
                error < 0 ? strerrordesc_np(-error) : "");
}

/* ---- what it is told */

static void add_port(uint32_t port, uint32_t ret[NETWORK_PORTS_MAX], size_t *n)
{
        for (size_t i = 0; i < *n; i++)
                if (ret[i] == port)
                        return;
        if (*n < NETWORK_PORTS_MAX)
                ret[(*n)++] = port;
}

/* Each port that an allow rule names, once; a public network has all, of which the web's are the ones most wanted. */
static size_t collect_ports(const struct policy *policy, uint32_t ret[NETWORK_PORTS_MAX])
{
        size_t n = 0;

        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];

                for (size_t j = 0; !rule->deny && j < rule->ports_n; j++)
                        add_port(rule->ports[j], ret, &n);
        }
        if (policy->network == NETWORK_PUBLIC) {
                add_port(80, ret, &n);
                add_port(443, ret, &n);
        }
        return n;
}

static int draw(uint8_t *to, size_t n)
{
        return getrandom(to, n, 0) == (ssize_t)n ? 0 : -EIO;
}

static int send_activate(struct vm_conversation *v, struct refusal *ret_refusal)
{
        uint8_t seed[WB_SEED_BYTES], nonce[WB_NONCE_BYTES];
        uint32_t ports[NETWORK_PORTS_MAX];
        Wb__Activate activate = WB__ACTIVATE__INIT;
        Wb__Network network = WB__NETWORK__INIT;
        struct vm_secrets_sent sent = {0};
        ProtobufCBinaryData ca;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        int r = draw(seed, sizeof(seed));

        if (r == 0)
                r = draw(nonce, sizeof(nonce));
        if (r < 0)
                return r;
        network.egress = true;
        network.n_ports = collect_ports(v->entry->policy, ports);
        network.ports = ports;
        interception_give_ca(v->entry);
        if (v->entry->ca) {
                char *pem = (char *)(uintptr_t)ca_certificate(v->entry->ca);

                ca = (ProtobufCBinaryData){strlen(pem), (uint8_t *)pem};
                network.ca_pem = &ca;
                network.n_ca_pem = 1;
        }
        activate.seed = (ProtobufCBinaryData){sizeof(seed), seed};
        activate.nonce = (ProtobufCBinaryData){sizeof(nonce), nonce};
        activate.generation = v->generation;
        activate.set_clock = v->entry->config.transport != TRANSPORT_UNIX;
        activate.network = &network;
        r = vm_secrets_activate(v->entry, v->generation, v->secrets, &sent, &activate, ret_refusal);
        m.body_case = WB__TO_AGENT__BODY_ACTIVATE;
        m.activate = &activate;
        if (r == 0)
                r = client_send(v->client, &m);
        if (r == -EMSGSIZE)
                (void)snprintf(ret_refusal->message, sizeof(ret_refusal->message),
                        "the secrets are more than fit in one message");
        explicit_bzero(seed, sizeof(seed));
        activation_secrets_free(v->secrets);
        v->secrets = NULL;
        return r;
}

/* On failure *ret_refusal may have a message that says more than the errno. */
static int send_opening(struct vm_conversation *v, struct refusal *ret_refusal)
{
        Wb__InfoRequest info = WB__INFO_REQUEST__INIT;
        Wb__Quiesce quiesce = WB__QUIESCE__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        if (v->stage == STAGE_MAIN && v->wish == VM_ACTIVATE)
                return send_activate(v, ret_refusal);
        if (v->stage == STAGE_INFO) {
                m.body_case = WB__TO_AGENT__BODY_INFO;
                m.info = &info;
        } else {
                m.body_case = WB__TO_AGENT__BODY_QUIESCE;
                m.quiesce = &quiesce;
        }
        return client_send(v->client, &m);
}

/* Each conversation has its own time. */
static int limit_stage(struct vm_conversation *v)
{
        struct timeval limit = {.tv_sec = ACTIVATE_LIMIT_S};

        if (v->stage == STAGE_INFO)
                limit.tv_sec = INFO_LIMIT_S;
        else if (v->wish == VM_QUIESCE)
                limit.tv_sec = QUIESCE_LIMIT_S;
        return event_add(v->limit_event, &limit) < 0 ? -ENOMEM : 0;
}

static void on_dialled(void *userdata, int result)
{
        static const struct client_handler handler = {.message = on_message, .closed = on_closed};
        struct vm_conversation *v = userdata;
        struct refusal refusal = {.reason = REASON_NOT_READY};
        int r;

        if (result < 0) {
                fail(v, "the agent cannot be reached: %s", agent_dial_fault(result));
                return;
        }
        r = client_new(v->entry->registry->base, result, &handler, v, &v->client);
        if (r == 0)
                r = limit_stage(v);
        if (r == 0)
                r = send_opening(v, &refusal);
        v->fault = refusal.reason;
        if (r < 0 && refusal.message[0])
                fail(v, "%s", refusal.message);
        else if (r < 0)
                fail(v, "cannot speak with the agent: %s", strerrordesc_np(-r));
}

/* ---- the beginning */

static const char *find_fault(const struct vm_entry *e)
{
        if (!e->config.agent)
                return "this VM was added without an agent";
        if (e->conversation)
                return "an activation or quiesce of this VM is under way";
        return e->state == VM_REVOKED ? "this VM is revoked; remove it and add it anew" : NULL;
}

static struct vm_conversation *conversation_new(struct vm_entry *e, enum vm_wish wish, struct control_request *request)
{
        struct vm_conversation *v = calloc(1, sizeof(*v));

        if (!v)
                return NULL;
        *v = (struct vm_conversation){.entry = e, .wish = wish, .request = request, .fault = REASON_NOT_READY};
        v->stage = wish == VM_ACTIVATE ? STAGE_INFO : STAGE_MAIN;
        v->steps = json_array();
        v->limit_event = event_new(e->registry->base, -1, 0, on_limit, v);
        if (!v->steps || !v->limit_event || agent_dial_init(&v->dial, e, on_dialled, v) < 0) {
                conversation_free(v);
                return NULL;
        }
        e->conversation = v;
        return v;
}

/* Its wall does not stand any more. */
static void refuse(struct vm_entry *e, const struct refusal *refusal, struct control_request *request)
{
        json_t *answer = answer_error("activation refused: %s", refusal->message);

        (void)registry_record(e, AUDIT_ACTIVATE, refusal->reason, refusal->message);
        (void)json_object_set_new(answer, "reason", json_string(reason_info(refusal->reason)->name));
        control_answer(request, answer);
}

void activation_start(
        struct vm_entry *e, enum vm_wish wish, struct activation_secrets *secrets, struct control_request *request)
{
        const char *fault = find_fault(e);
        struct vm_conversation *v;
        struct refusal refusal;
        int r;

        if (fault) {
                activation_secrets_free(secrets);
                control_answer(request, answer_error("%s", fault));
                return;
        }
        if (wish == VM_ACTIVATE && proof_again(e, &refusal) < 0) {
                activation_secrets_free(secrets);
                refuse(e, &refusal, request);
                return;
        }
        v = conversation_new(e, wish, request);
        if (!v) {
                activation_secrets_free(secrets);
                control_answer(request, answer_error("no memory"));
                return;
        }
        v->secrets = secrets;
        secret_delivery_pause(e);
        /* Closed before the guest is spoken to: what it does meanwhile goes nowhere. */
        r = registry_set_state(e, wish == VM_ACTIVATE ? VM_ACTIVATING : VM_QUIESCED, e->generation);
        if (r < 0)
                fail(v, "egress cannot be closed: %s", strerrordesc_np(-r));
        else
                agent_dial_start(&v->dial);
}
