/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/registry.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/ca.h"
#include "broker/interception.h"
#include "broker/proof.h"
#include "broker/vm_secrets.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

static const char *const state_names[] = {
        [VM_CLOSED] = "closed",
        [VM_ACTIVATING] = "activating",
        [VM_OPEN] = "open",
        [VM_QUIESCED] = "quiesced",
        [VM_REVOKED] = "revoked",
};
static_assert(sizeof(state_names) / sizeof(*state_names) == VM_STATE_MAX_, "a state has no name");

const char *vm_state_name(enum vm_state state)
{
        assert(state < VM_STATE_MAX_);
        return state_names[state];
}

struct vm_entry *registry_find(const struct registry *r, const char *name)
{
        struct vm_entry *e;

        TAILQ_FOREACH (e, &r->vms, link)
                if (strcmp(e->config.name, name) == 0)
                        return e;
        return NULL;
}

struct vm_entry *registry_find_cid(const struct registry *r, uint32_t cid)
{
        struct vm_entry *e;

        TAILQ_FOREACH (e, &r->vms, link)
                if (e->config.cid && e->config.cid == cid)
                        return e;
        return NULL;
}

static int refuse(struct refusal *to, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(struct refusal *to, int error, const char *format, ...)
{
        va_list ap;

        to->reason = REASON_ALLOWED;
        va_start(ap, format);
        (void)vsnprintf(to->message, sizeof(to->message), format, ap);
        va_end(ap);
        return error;
}

static int refuse_errno(struct refusal *to, int error, const char *what)
{
        return refuse(to, error, "%s: %s", what, strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown error");
}

int registry_record_of(
        struct vm_entry *e, uint64_t generation, enum audit_event event, enum reason reason, const char *detail)
{
        struct audit_record record = AUDIT_RECORD_INIT(event);

        record.vm = e->config.name;
        record.generation = generation;
        record.has_decision = reason != REASON_MAX_;
        record.reason = record.has_decision ? reason : REASON_ALLOWED;
        record.policy_sha256 = e->policy ? e->policy->sha256 : NULL;
        record.detail = detail;
        return audit_submit(e->registry->audit, &record, NULL, NULL);
}

int registry_record(struct vm_entry *e, enum audit_event event, enum reason reason, const char *detail)
{
        return registry_record_of(e, e->generation, event, reason, detail);
}

static struct transport transport_of(const struct config_vm *vm)
{
        return (struct transport){
                .kind = (enum transport_kind)vm->transport, .path = vm->path, .cid = (uint32_t)vm->cid};
}

static void free_entry(struct vm_entry *e)
{
        event_del(&e->expiry);
        vm_secrets_free(e);
        proof_done(e);
        policy_unref(e->policy);
        ca_unref(e->ca);
        free(e->config.name);
        free(e->config.path);
        free(e);
}
DEFINE_CLEANUP(struct vm_entry *, free_entry);

static void on_expired(evutil_socket_t fd, short events, void *userdata)
{
        struct vm_entry *e = userdata;

        (void)fd;
        (void)events;
        if (e->state != VM_REVOKED)
                registry_cut(e, REASON_REVOKED, "policy expired");
}

void registry_set_expiry(struct vm_entry *e, uint64_t for_ms)
{
        const struct timeval tv = {.tv_sec = (time_t)(for_ms / 1000), .tv_usec = (suseconds_t)(for_ms % 1000 * 1000)};

        event_del(&e->expiry);
        e->expires_ns = for_ms ? clock_realtime_ns() + for_ms * NSEC_PER_MSEC : 0;
        if (for_ms && event_add(&e->expiry, &tv) < 0)
                on_expired(-1, 0, e); /* rather now than never */
}

static struct vm_entry *new_entry(
        struct registry *r, const struct config_vm *config, struct policy *policy, bool from_file)
{
        struct vm_entry *e = calloc(1, sizeof(*e));

        if (!e)
                return NULL;
        *e = (struct vm_entry){.registry = r, .config = *config, .from_file = from_file, .pidfd = -1};
        event_assign(&e->expiry, r->base, -1, 0, on_expired, e);
        e->policy = policy_ref(policy);
        e->config.policy = (struct config_text){0};
        e->config.name = strdup(config->name);
        e->config.path = config->path ? strdup(config->path) : NULL;
        if (!e->config.name || (config->path && !e->config.path)) {
                free_entry(e);
                return NULL;
        }
        return e;
}

static int check_new(const struct registry *r, const struct config_vm *config, struct refusal *ret_refusal)
{
        const char *fault = config_vm_fault(config, r->vsock_listens);
        const struct vm_entry *e;

        if (fault)
                return refuse(ret_refusal, -EINVAL, "%s", fault);
        if (r->vms_n >= CONFIG_VMS_MAX)
                return refuse(ret_refusal, -E2BIG, "there are %u VMs already", CONFIG_VMS_MAX);
        TAILQ_FOREACH (e, &r->vms, link) {
                const char *shared = config_vm_clash(&e->config, config);

                if (shared)
                        return refuse(ret_refusal, -EEXIST, "VM '%s' has this %s already", e->config.name, shared);
        }
        return 0;
}

/* Before a VM comes, so that it finds its share free, and after one has gone. */
static void divide_capacity(struct registry *r, size_t vms_n)
{
        struct capacity_share share;

        if (!vms_n || !r->workers_n)
                return;
        capacity_divide(&r->capacity, vms_n, r->workers_n, &share);
        for (size_t i = 0; i < r->workers_n; i++)
                (void)worker_set_share(r->workers[i], &share);
}

/* Where VMs are fewest. */
static struct worker *choose_worker(const struct registry *r)
{
        size_t least = SIZE_MAX, chosen = 0;

        for (size_t i = 0; i < r->workers_n; i++) {
                const struct vm_entry *e;
                size_t n = 0;

                TAILQ_FOREACH (e, &r->vms, link)
                        n += e->worker == r->workers[i];
                if (n < least) {
                        least = n;
                        chosen = i;
                }
        }
        return r->workers[chosen];
}

/* Opens the VM's sockets and gives them to a worker. */
static int open_egress(struct vm_entry *e, struct refusal *ret_refusal)
{
        struct transport t = transport_of(&e->config);
        struct vm_config config = {.name = e->config.name,
                .policy = e->policy,
                .vsock_cid = (uint32_t)e->config.cid,
                .ready = !e->config.agent,
                .ca = e->ca};
        uint64_t vmm_uid = e->evidence.exists && !e->evidence.threads.error ? e->evidence.threads.uids[1] : IPC_NO_UID;
        int egress, service, r;

        if (t.kind != TRANSPORT_VSOCK) {
                r = monitor_ask_listen(e->registry->monitor, &t, vmm_uid, &egress, &service);
                if (r < 0)
                        return refuse_errno(ret_refusal, r, "cannot listen for the VM");
                config.listeners = &egress;
                config.listeners_n = 1;
                config.service_listener = &service;
        }
        divide_capacity(e->registry, e->registry->vms_n + 1);
        e->worker = choose_worker(e->registry);
        r = worker_vm_add(e->worker, &config, &e->vm);
        if (r < 0) {
                if (config.listeners_n)
                        (void)monitor_ask_unlisten(e->registry->monitor, &t);
                return refuse_errno(ret_refusal, r, "the worker does not take the VM");
        }
        return 0;
}

/* What cannot be recorded does not happen; the VM has been open for the blink of an eye, and what it did then was
 * refused the same way. */
static int record_added(struct vm_entry *e, struct refusal *ret_refusal)
{
        struct transport t = transport_of(&e->config);
        char text[PROOF_TEXT_BYTES];
        int r;

        proof_print(e, "", e->wall.message, text);
        r = registry_record(e, AUDIT_VM_ADD, REASON_ALLOWED, text);
        if (r >= 0)
                return 0;
        (void)worker_vm_remove(e->worker, e->vm);
        if (t.kind != TRANSPORT_VSOCK)
                (void)monitor_ask_unlisten(e->registry->monitor, &t);
        (void)refuse_errno(ret_refusal, r, "the VM's addition cannot be recorded");
        ret_refusal->reason = REASON_AUDIT_UNAVAILABLE;
        return -EPERM;
}

/* From the evidence to the open socket. */
static int admit(struct vm_entry *e, struct refusal *ret_refusal)
{
        int r = proof_first(e, ret_refusal);

        if (r == 0 && proof_watch(e) < 0)
                r = refuse_errno(ret_refusal, -ENOMEM, "VM");
        if (r == 0)
                r = open_egress(e, ret_refusal);
        if (r == 0)
                r = record_added(e, ret_refusal);
        return r;
}

static int add(struct registry *registry, const struct config_vm *config, struct policy *policy, bool from_file,
        struct refusal *ret_refusal)
{
        _cleanup_(free_entryp) struct vm_entry *e = NULL;
        char text[PROOF_TEXT_BYTES];
        int r = check_new(registry, config, ret_refusal);

        if (r < 0)
                return r;
        e = new_entry(registry, config, policy, from_file);
        if (!e)
                return refuse_errno(ret_refusal, -ENOMEM, "VM");
        e->state = config->agent ? VM_CLOSED : VM_OPEN;
        if (!config->agent)
                interception_give_ca(e);
        r = admit(e, ret_refusal);
        if (r < 0) {
                enum reason reason = ret_refusal->reason == REASON_ALLOWED ? REASON_NOT_READY : ret_refusal->reason;

                proof_print(e, "", ret_refusal->message, text);
                (void)registry_record(e, AUDIT_VM_ADD, reason, text);
                return r;
        }
        TAILQ_INSERT_TAIL(&registry->vms, e, link);
        registry->vms_n++;
        log_info("VM '%s' added: %s", config->name, e->wall.message);
        interception_warn(e);
        (void)STEAL(e);
        return 0;
}

int registry_add(struct registry *registry, const struct config_vm *config, struct policy *policy, bool from_file,
        struct refusal *ret_refusal)
{
        int r = add(registry, config, policy, from_file, ret_refusal);

        if (r < 0)
                log_error("VM '%s' is not added: %s", config->name, ret_refusal->message);
        return r;
}

int registry_set_policy(
        struct registry *registry, struct vm_entry *e, struct policy *policy, struct refusal *ret_refusal)
{
        struct wall wall;
        int r;

        (void)registry;
        proof_judge(e, policy, &wall);
        if (wall.reason != REASON_ALLOWED) {
                ret_refusal->reason = wall.reason;
                (void)snprintf(ret_refusal->message, sizeof(ret_refusal->message), "%s", wall.message);
                (void)registry_record(e, AUDIT_POLICY_LOAD, wall.reason, wall.message);
                return -EPERM;
        }
        r = worker_vm_set_policy(e->worker, e->vm, policy);
        if (r < 0)
                return refuse_errno(ret_refusal, r, "the worker does not take the policy");
        (void)policy_ref(policy);
        policy_unref(e->policy);
        e->policy = policy;
        e->wall = wall;
        registry_set_expiry(e, 0);
        (void)registry_record(e, AUDIT_POLICY_LOAD, REASON_ALLOWED, NULL);
        log_info("VM '%s': policy replaced", e->config.name);
        interception_warn(e);
        return 0;
}

int registry_set_state(struct vm_entry *e, enum vm_state state, uint64_t generation)
{
        int r;

        if (e->state == VM_REVOKED && state != VM_REVOKED)
                return -EPERM;
        r = state == VM_REVOKED ? worker_vm_revoke(e->worker, e->vm)
                                : worker_vm_set_ready(e->worker, e->vm, state == VM_OPEN, generation, e->ca);
        if (r < 0)
                return r;
        e->state = state;
        e->generation = generation;
        return 0;
}

int registry_revoke(struct registry *registry, struct vm_entry *e, struct refusal *ret_refusal)
{
        int r = registry_set_state(e, VM_REVOKED, e->generation);

        (void)registry;
        if (r < 0)
                return refuse_errno(ret_refusal, r, "the worker does not revoke");
        vm_conversation_cancel(e);
        (void)registry_record(e, AUDIT_REVOKE, REASON_MAX_, NULL);
        log_info("VM '%s': revoked", e->config.name);
        return 0;
}

void registry_cut(struct vm_entry *e, enum reason reason, const char *detail)
{
        int r = registry_set_state(e, VM_REVOKED, e->generation);

        vm_conversation_cancel(e);
        (void)registry_record(e, AUDIT_REVOKE, reason, detail);
        log_error("VM '%s' is cut off: %s", e->config.name, detail);
        if (r < 0)
                (void)log_errno(r, "VM '%s': its worker does not revoke", e->config.name);
}

void registry_record_refused(struct registry *registry, const char *name, enum reason reason, const char *detail)
{
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_VM_ADD);

        record.vm = name;
        record.has_decision = true;
        record.reason = reason;
        record.detail = detail;
        (void)audit_submit(registry->audit, &record, NULL, NULL);
}

void registry_remove(struct registry *registry, struct vm_entry *e, const char *why)
{
        struct transport t = transport_of(&e->config);

        vm_conversation_cancel(e);
        TAILQ_REMOVE(&registry->vms, e, link);
        registry->vms_n--;
        (void)worker_vm_remove(e->worker, e->vm);
        divide_capacity(registry, registry->vms_n);
        if (t.kind != TRANSPORT_VSOCK)
                (void)monitor_ask_unlisten(registry->monitor, &t);
        (void)registry_record(e, AUDIT_VM_RM, REASON_MAX_, why);
        log_info("VM '%s' removed: %s", e->config.name, why);
        free_entry(e);
}

void registry_remove_all(struct registry *r, const char *why)
{
        while (!TAILQ_EMPTY(&r->vms))
                registry_remove(r, TAILQ_FIRST(&r->vms), why);
}
