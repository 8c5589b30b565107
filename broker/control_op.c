/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/control_op.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/activation.h"
#include "broker/ca.h"
#include "broker/control_secret.h"
#include "broker/interception.h"
#include "broker/policy_load.h"
#include "proto/base/clock.h"

#define MS_MAX (INT64_C(10) * 366 * 24 * 60 * 60 * 1000)

json_t *answer_ok(void)
{
        return json_pack("{s:b}", "ok", 1);
}

json_t *answer_error(const char *format, ...)
{
        char text[1024];
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        return json_pack("{s:b, s:s}", "ok", 0, "error", text);
}

json_t *answer_invalid(const char *text)
{
        return json_pack("{s:b, s:s, s:b}", "ok", 0, "error", text, "invalid", 1);
}

json_t *answer_refusal(int r, const struct refusal *refusal)
{
        json_t *a = r == -EINVAL ? answer_invalid(refusal->message) : answer_error("%s", refusal->message);

        if (a && refusal->reason != REASON_ALLOWED)
                (void)json_object_set_new(a, "reason", json_string(reason_info(refusal->reason)->name));
        return a;
}

const char *take_ms(const json_t *body, const char *key, uint64_t *ret)
{
        const json_t *value = json_object_get(body, key);
        json_int_t ms = json_integer_value(value);

        if (value && (!json_is_integer(value) || ms < 1 || ms > MS_MAX))
                return "for_ms and ttl_ms are numbers of milliseconds, at most ten years";
        *ret = (uint64_t)ms;
        return NULL;
}

/* ---- what is told of a VM */

static json_t *describe(const struct vm_entry *e)
{
        struct vm_stats stats = {0};
        char policy[65];

        (void)worker_vm_stats(e->worker, e->vm, &stats);
        for (size_t i = 0; i < 32; i++)
                (void)snprintf(policy + 2 * i, 3, "%02x", e->policy->sha256[i]);
        return json_pack("{s:s, s:s, s:s, s:s, s:s*, s:I, s:I, s:b, s:s, s:b, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
                "name", e->config.name, "state", vm_state_name(e->state), "backend",
                backend_name((enum backend)e->config.backend), "transport",
                config_transport_words.words[e->config.transport], "path", e->config.path, "cid",
                (json_int_t)e->config.cid, "pid", (json_int_t)e->config.pid, "agent", e->config.agent, "tier",
                isolation_tier_name(e->wall.tier), "verified", e->wall.verified, "generation",
                (json_int_t)e->generation, "policy", policy, "sessions_open", (json_int_t)stats.sessions_open,
                "sessions_total", (json_int_t)stats.sessions_total, "allowed_total", (json_int_t)stats.allowed_total,
                "denied_total", (json_int_t)stats.denied_total, "bytes_up", (json_int_t)stats.bytes_up, "bytes_down",
                (json_int_t)stats.bytes_down);
}

static json_t *describe_layers(const struct vm_entry *e)
{
        layer_set required = e->registry->rules->required, rests_on = wall_rests_on((enum backend)e->config.backend);
        json_t *layers = json_array();

        for (int i = 0; i < LAYER_MAX_; i++)
                (void)json_array_append_new(layers,
                        json_pack("{s:s, s:s, s:s, s:b, s:b}", "layer", layer_name((enum layer)i), "state",
                                layer_state_name(e->layers.of[i].state), "fact", e->layers.of[i].fact, "required",
                                (required & LAYER_BIT(i)) != 0, "tier_rests_on_it", (rests_on & LAYER_BIT(i)) != 0));
        return layers;
}

/* For a program; a person reads the layers. What could not be read is null. */
static json_t *describe_evidence(const struct evidence *e)
{
        /* A path that is no UTF-8 has no JSON; the layer's fact shows what can be shown of it. */
        json_t *program = e->program.error ? NULL : json_string(e->program.path);
        char sha256[65] = "";

        for (size_t i = 0; i < sizeof(e->program.sha256); i++)
                (void)snprintf(sha256 + 2 * i, 3, "%02x", e->program.sha256[i]);
        return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "pid", (int)e->pid, "program",
                program ? program : json_null(), "sha256",
                e->program.error || e->program.digest_error ? json_null() : json_string(sha256), "uid",
                e->threads.error ? json_null() : json_integer(e->threads.uids[1]), "kvm_vms",
                e->kvm.error ? json_null() : json_integer(e->kvm.vms), "kvm_vcpus",
                e->kvm.error ? json_null() : json_integer(e->kvm.vcpus));
}

static void show(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        json_t *vm = describe(e);
        char timestamp[CLOCK_TEXT_BYTES];

        (void)r;
        (void)body;
        clock_format(e->checked_ns, timestamp);
        (void)json_object_set_new(vm, "isolation", json_string(e->wall.message));
        (void)json_object_set_new(vm, "checked", json_string(timestamp));
        (void)json_object_set_new(vm, "layers", describe_layers(e));
        if (e->expires_ns) {
                clock_format(e->expires_ns, timestamp);
                (void)json_object_set_new(vm, "expires", json_string(timestamp));
        }
        if (e->evidence.exists)
                (void)json_object_set_new(vm, "evidence", describe_evidence(&e->evidence));
        control_answer(request, json_pack("{s:b, s:o}", "ok", 1, "vm", vm));
}

static void list(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        json_t *vms = json_array();
        const struct vm_entry *e;

        (void)none;
        (void)body;
        TAILQ_FOREACH (e, &r->vms, link)
                (void)json_array_append_new(vms, describe(e));
        control_answer(request, json_pack("{s:b, s:o}", "ok", 1, "vms", vms));
}

static void stats(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        struct vm_stats sum = {0}, one;
        const struct vm_entry *e;

        (void)none;
        (void)body;
        TAILQ_FOREACH (e, &r->vms, link) {
                if (worker_vm_stats(e->worker, e->vm, &one) < 0)
                        continue;
                sum.sessions_open += one.sessions_open;
                sum.sessions_total += one.sessions_total;
                sum.allowed_total += one.allowed_total;
                sum.denied_total += one.denied_total;
                sum.bytes_up += one.bytes_up;
                sum.bytes_down += one.bytes_down;
        }
        control_answer(request,
                json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", 1, "vms", (json_int_t)r->vms_n,
                        "workers", (json_int_t)r->workers_n, "sessions_open", (json_int_t)sum.sessions_open,
                        "sessions_total", (json_int_t)sum.sessions_total, "allowed_total",
                        (json_int_t)sum.allowed_total, "denied_total", (json_int_t)sum.denied_total, "bytes_up",
                        (json_int_t)sum.bytes_up, "bytes_down", (json_int_t)sum.bytes_down));
}

/* ---- what changes a VM */

/* The policy of a request; on failure *ret_answer says why. */
static struct policy *load_policy(const json_t *body, json_t **ret_answer)
{
        const json_t *text = json_object_get(body, "policy");
        const char *file = json_string_value(json_object_get(body, "policy_file"));
        struct yaml_error error = {0};
        struct policy *policy = NULL;
        char message[1024];
        int r;

        if (!json_is_string(text)) {
                *ret_answer = answer_invalid("`policy` must be the text of a policy");
                return NULL;
        }
        r = policy_load(file ? file : "policy", json_string_value(text), json_string_length(text), &policy, &error);
        if (r == YAML_E_INVALID) {
                (void)snprintf(message, sizeof(message), "%s:%u:%u: %s", error.file ? error.file : "policy", error.line,
                        error.column, error.message);
                *ret_answer = answer_invalid(message);
        } else if (r < 0) {
                *ret_answer = answer_error("no memory");
        }
        yaml_error_done(&error);
        return r == 0 ? policy : NULL;
}

static int find_word(const struct yaml_words *words, const char *text)
{
        for (size_t i = 0; text && i < words->n; i++)
                if (strcmp(words->words[i], text) == 0)
                        return (int)i;
        return -1;
}

/* The texts are body's. NULL, or what is wrong. */
static const char *take_vm(json_t *body, struct config_vm *ret)
{
        const char *name = NULL, *backend = NULL, *transport = NULL, *path = NULL, *policy = NULL, *policy_file = NULL,
                   *op = NULL;
        json_int_t cid = 0, pid = 0, for_ms = 0; /* the last: take_ms() */
        int agent = 1;

        if (json_unpack(body, "{s:s, s:s, s:s, s:s, s?s, s?I, s?I, s?b, s:s, s?s, s?I!}", "op", &op, "name", &name,
                    "backend", &backend, "transport", &transport, "path", &path, "cid", &cid, "pid", &pid, "agent",
                    &agent, "policy", &policy, "policy_file", &policy_file, "for_ms", &for_ms) < 0)
                return "vm_add wants name, backend, transport, policy and may have path, cid, pid, agent, policy_file, for_ms";
        *ret = (struct config_vm){.name = (char *)(uintptr_t)name, .path = (char *)(uintptr_t)path, .agent = agent};
        ret->backend = find_word(&config_backend_words, backend);
        ret->transport = find_word(&config_transport_words, transport);
        if (ret->backend < 0)
                return "backend is firecracker, cloud-hypervisor, qemu, gvisor, runc or other";
        if (ret->transport < 0)
                return "transport is hybrid, vsock or unix";
        if (pid < 0 || pid > INT32_MAX || cid < 0 || cid >= UINT32_MAX || (cid > 0 && cid < 3))
                return "cid or pid is out of range";
        ret->pid = (uint64_t)pid;
        ret->cid = (uint64_t)cid;
        return NULL;
}

/* A backend that no broker can serve is a refusal like one for a weak wall, and told to the audit as such. */
static bool refuse_backend(struct registry *r, const json_t *body, struct control_request *request)
{
        const char *backend = json_string_value(json_object_get(body, "backend"));
        const char *why = backend ? backend_refusal(backend) : NULL;
        struct refusal refusal = {.reason = REASON_ISOLATION_UNKNOWN};

        if (!why)
                return false;
        (void)snprintf(refusal.message, sizeof(refusal.message), "%s", why);
        registry_record_refused(r, json_string_value(json_object_get(body, "name")), refusal.reason, refusal.message);
        control_answer(request, answer_refusal(-EPERM, &refusal));
        return true;
}

static void add(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        struct refusal refusal = {0};
        struct config_vm vm;
        const char *fault = take_vm((json_t *)(uintptr_t)body, &vm);
        struct policy *policy;
        json_t *answer = NULL;
        uint64_t for_ms = 0;
        int error;

        (void)none;
        if (!fault)
                fault = take_ms(body, "for_ms", &for_ms);
        if (refuse_backend(r, body, request))
                return;
        if (fault) {
                control_answer(request, answer_invalid(fault));
                return;
        }
        policy = load_policy(body, &answer);
        if (!policy) {
                control_answer(request, answer);
                return;
        }
        error = registry_add(r, &vm, policy, false, &refusal);
        policy_unref(policy);
        if (error == 0)
                registry_set_expiry(registry_find(r, vm.name), for_ms);
        control_answer(request, error < 0 ? answer_refusal(error, &refusal) : answer_ok());
}

static void replace_policy(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        struct refusal refusal = {0};
        json_t *answer = NULL;
        uint64_t for_ms = 0;
        const char *fault = take_ms(body, "for_ms", &for_ms);
        struct policy *policy = fault ? NULL : load_policy(body, &answer);
        int error;

        if (fault)
                answer = answer_invalid(fault);
        if (!policy) {
                control_answer(request, answer);
                return;
        }
        error = registry_set_policy(r, e, policy, &refusal);
        policy_unref(policy);
        if (error == 0)
                registry_set_expiry(e, for_ms);
        control_answer(request, error < 0 ? answer_refusal(error, &refusal) : answer_ok());
}

static void rm(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        (void)body;
        registry_remove(r, e, "asked for");
        control_answer(request, answer_ok());
}

static void revoke(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        struct refusal refusal = {0};
        int error = registry_revoke(r, e, &refusal);

        (void)body;
        control_answer(request, error < 0 ? answer_refusal(error, &refusal) : answer_ok());
}

static void activate(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        struct activation_secrets *secrets = NULL;
        const char *fault = "no memory";
        int error = activation_secrets_take(json_object_get(body, "secrets"), &secrets, &fault);

        (void)r;
        if (error < 0)
                control_answer(request, error == -EINVAL ? answer_invalid(fault) : answer_error("%s", fault));
        else
                activation_start(e, VM_ACTIVATE, secrets, request);
}

static void quiesce(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        (void)r;
        (void)body;
        activation_start(e, VM_QUIESCE, NULL, request);
}

static void reload(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        (void)r;
        (void)none;
        (void)body;
        control_want_reload(request);
}

/* The CA in force. The certificate alone: its key leaves the broker by no way. */
static void answer_ca(const struct registry *r, struct control_request *request)
{
        if (!r->ca) {
                control_answer(request, answer_error("there is no interception CA; the broker's log says why"));
                return;
        }
        control_answer(
                request, json_pack("{s:b, s:{s:s, s:s, s:s, s:b, s:s}}", "ok", 1, "ca", "sha256", ca_fingerprint(r->ca),
                                 "not_before", ca_not_before(r->ca), "not_after", ca_not_after(r->ca), "intercepts",
                                 (int)r->intercepts, "certificate", ca_certificate(r->ca)));
}

static void show_ca(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        (void)none;
        (void)body;
        answer_ca(r, request);
}

static void rotate_ca(struct registry *r, struct vm_entry *none, const json_t *body, struct control_request *request)
{
        int error = interception_load_ca(r, true);

        (void)none;
        (void)body;
        if (error < 0)
                control_answer(request, answer_error("the CA stays as it is: %s", strerrordesc_np(-error)));
        else
                answer_ca(r, request);
}

static const struct operation {
        const char *name;
        bool of_vm; /* `name` must be a VM's */
        void (*run)(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request);
} operations[] = {
        {"vm_add", false, add},
        {"vm_rm", true, rm},
        {"vm_ls", false, list},
        {"vm_show", true, show},
        {"vm_policy", true, replace_policy},
        {"vm_activate", true, activate},
        {"vm_quiesce", true, quiesce},
        {"vm_revoke", true, revoke},
        {"secret_put", true, control_secret_put},
        {"secret_rm", true, control_secret_rm},
        {"secret_ls", true, control_secret_ls},
        {"ca_show", false, show_ca},
        {"ca_rotate", false, rotate_ca},
        {"reload", false, reload},
        {"stats", false, stats},
};

void control_operate(struct registry *registry, const json_t *body, struct control_request *request)
{
        const char *op = json_string_value(json_object_get(body, "op"));
        const char *name = json_string_value(json_object_get(body, "name"));
        const struct operation *found = NULL;
        struct vm_entry *e = NULL;
        json_t *answer;

        for (size_t i = 0; op && i < sizeof(operations) / sizeof(*operations) && !found; i++)
                if (strcmp(operations[i].name, op) == 0)
                        found = &operations[i];
        if (!found) {
                control_answer(request, answer_invalid("there is no such operation"));
                return;
        }
        if (found->of_vm) {
                e = name ? registry_find(registry, name) : NULL;
                if (!e) {
                        answer = answer_error("there is no VM '%s'", name ? name : "");
                        (void)json_object_set_new(answer, "absent", json_true());
                        control_answer(request, answer);
                        return;
                }
        }
        found->run(registry, e, body, request);
}
