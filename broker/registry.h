/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The VMs of a broker: each with its worker, its policy, its wall and its state. Belongs to the broker's main thread.
 * Every change is audited here, and nowhere else.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "broker/audit.h"
#include "broker/capacity.h"
#include "broker/config.h"
#include "broker/evidence.h"
#include "broker/monitor_client.h"
#include "broker/policy.h"
#include "broker/wall.h"
#include "broker/worker.h"

enum vm_state {
        VM_CLOSED, /* waits for its activation: egress answers not_ready */
        VM_ACTIVATING,
        VM_OPEN,
        VM_QUIESCED, /* closed again, for a snapshot */
        VM_REVOKED,  /* for good: only removing it and adding it anew opens it */
        VM_STATE_MAX_,
};

struct clock_check;
struct secret_delivery;
struct vm_conversation;
struct vm_secrets;

struct vm_entry {
        TAILQ_ENTRY(vm_entry) link;
        struct registry *registry;
        struct config_vm config; /* its own copies; policy.text unused */
        bool from_file;          /* a reload may take it away */
        struct policy *policy;
        struct wall wall; /* this and what follows up to recheck_event: set by proof.c alone */
        struct layers layers;
        struct evidence evidence; /* where a pid was given */
        uint64_t checked_ns;      /* when that was last looked at, CLOCK_REALTIME */
        int pidfd;                /* -1: none */
        struct event *pid_event;
        struct event *recheck_event;
        struct event expiry;
        uint64_t expires_ns; /* when the policy does, CLOCK_REALTIME; 0: never */
        enum vm_state state; /* changed by registry_set_state() alone */
        uint64_t generation; /* of its last activation, 0 before the first */
        struct ca *ca;       /* that its guest was given; NULL: none. Set by interception_give_ca() alone */
        struct worker *worker;
        struct vm *vm;                        /* the worker's */
        struct vm_conversation *conversation; /* activation.c's, NULL while none is under way */
        struct clock_check *clock_check;      /* clock_check.c's, NULL while none is under way */
        struct vm_secrets *secrets;           /* vm_secrets.c's, NULL until one was put */
        struct secret_delivery *delivery;     /* secret_delivery.c's, NULL while none is under way */
};
TAILQ_HEAD(vm_list, vm_entry);

struct registry {
        struct event_base *base;
        struct monitor_client *monitor;
        struct audit *audit;
        struct worker **workers;
        size_t workers_n;
        struct vm_list vms;
        size_t vms_n;
        struct capacity capacity;       /* to be divided among them */
        const struct wall_rules *rules; /* the configuration's that is in force */
        uint64_t clock_check_s;         /* the same */
        struct ca *ca;                  /* the interception CA in force, a reference; NULL: there is none */
        bool intercepts;                /* the configuration wants it and has what it needs */
        bool vsock_listens;
        bool warned[BACKEND_MAX_]; /* that its tier is unknown or believed without evidence, once per backend */
};

/* Why an operation was refused, for a person; reason is REASON_ALLOWED unless it is one of the contract's. */
struct refusal {
        enum reason reason;
        char message[1024];
};

struct vm_entry *registry_find(const struct registry *r, const char *name);
struct vm_entry *registry_find_cid(const struct registry *r, uint32_t cid);

/*
 * All of these: 0, or a negative errno with *ret_refusal set; nothing has changed then. config is copied, of policy a
 * reference is taken.
 */
int registry_add(struct registry *r, const struct config_vm *config, struct policy *policy, bool from_file,
        struct refusal *ret_refusal);
int registry_set_policy(struct registry *r, struct vm_entry *e, struct policy *policy, struct refusal *ret_refusal);
int registry_revoke(struct registry *r, struct vm_entry *e, struct refusal *ret_refusal);

/*
 * The policy that is in force holds for so long, then the VM is revoked; 0: for good, as every policy does at first.
 * The next policy begins anew.
 */
void registry_set_expiry(struct vm_entry *e, uint64_t for_ms);

/* The same where its wall has fallen: reason says so in the audit. The entry stays, revoked. */
void registry_cut(struct vm_entry *e, enum reason reason, const char *detail);

/* A VM that was refused before it was an entry, in the audit. */
void registry_record_refused(struct registry *registry, const char *name, enum reason reason, const char *detail);

/* why is for the audit: "asked for", "its process ended", ... The entry is gone. */
void registry_remove(struct registry *r, struct vm_entry *e, const char *why);
void registry_remove_all(struct registry *r, const char *why);

/* The one place where a VM's egress opens and closes. A revoked VM stays so: -EPERM. */
int registry_set_state(struct vm_entry *e, enum vm_state state, uint64_t generation);

const char *vm_state_name(enum vm_state state);

/*
 * A record of this VM with its generation and policy; reason REASON_MAX_: without a decision. detail may be NULL.
 * Negative when it could not be queued: what is allowed must not happen then.
 */
int registry_record(struct vm_entry *e, enum audit_event event, enum reason reason, const char *detail);

/* The same with the generation that an activation is about to give it. */
int registry_record_of(
        struct vm_entry *e, uint64_t generation, enum audit_event event, enum reason reason, const char *detail);

/* How activation.c is told that an entry goes away under its conversation. */
void vm_conversation_cancel(struct vm_entry *e);
