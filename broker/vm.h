/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A VM as its worker runs it: its listeners, its policy and what is used of its limits, its sessions and what they may
 * hold. Lives on the worker's thread; the main thread holds the pointer as a name for it.
 */

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/bucket.h"
#include "broker/buffer.h"
#include "broker/ca.h"
#include "broker/capacity.h"
#include "broker/inspect.h"
#include "broker/limits.h"
#include "broker/mailbox.h"
#include "broker/name_budget.h"
#include "broker/pipe_pool.h"
#include "broker/policy.h"
#include "broker/resolver.h"
#include "broker/worker.h"

/* What the sessions of one worker share. */
struct worker_context {
        struct event_base *base;
        struct audit *audit;
        struct worker_settings *settings;
        struct resolver *resolver;
        struct mailbox *mailbox;
        struct pipe_pool pipes;
        struct inspect_list inspects;
        struct capacity_share share; /* of each VM */
        uint64_t audits_pending;     /* records whose writing a session, perhaps ended by now, waits for */
        bool draining;
};

struct listener;
struct service;
struct session;
LIST_HEAD(service_list, service);
LIST_HEAD(session_list, session);

struct vm {
        LIST_ENTRY(vm) in_worker;
        struct worker_context *context; /* outlives the VM */
        char *name;
        uint64_t generation;
        bool ready;
        bool revoked;
        bool removed; /* nothing is accepted any more */
        struct policy *policy;
        struct ca *ca;            /* that its guest trusts; NULL: none */
        struct inspect *inspect;  /* with that CA; NULL: not wanted yet */
        struct bucket handshakes; /* what intercepting its TLS may take of the worker's time */
        struct limits limits;
        struct budget budget;
        struct session_list sessions;
        size_t sessions_n;
        struct service_list services; /* conversations of port 1026 */
        size_t services_n;
        struct name_budget names;   /* asked for at port 1026 */
        struct name_budget lookups; /* asked of the name servers */
        struct vm_stats stats;
        uint64_t warned_ns;          /* a guest cannot fill the log */
        struct listener **listeners; /* of port 1025 */
        size_t listeners_n;
        struct listener *service_listener; /* NULL: none, or not its own */
};

/* Takes over the listeners of config also where it fails. 0, -ENOMEM, or another negative errno. */
int vm_new(struct worker_context *context, const struct vm_config *config, struct vm **ret);

/* Cuts every session. Takes NULL. */
void vm_free(struct vm *vm);

/* REASON_ALLOWED, REASON_NOT_READY or REASON_REVOKED: may anything pass at all? */
enum reason vm_gate(const struct vm *vm);

/* Live connections are judged again; what fails is cut and recorded. 0, -ENOMEM (then the old policy stays). */
int vm_set_policy(struct vm *vm, struct policy *policy);
void vm_set_ready(struct vm *vm, bool ready, uint64_t generation, struct ca *ca);
void vm_revoke(struct vm *vm);

/* The settings have changed: the floor may have grown. */
void vm_judge_again(struct vm *vm);

/* Stops accepting and ends what is idle. */
void vm_drain(struct vm *vm);

/* The context's share is another: a VM that has more than that now loses what it opened last. */
void vm_take_share(struct vm *vm);

/* A line in the log of what a guest does wrong, now and then. */
void vm_warn(struct vm *vm, const char *text);

/* A guest's connection; takes fd. One over the VM's bound is answered and closed. */
void vm_accept(struct vm *vm, int fd);

/* The same of port 1026. */
void vm_accept_service(struct vm *vm, int fd);

/* Can its TLS be intercepted? And with what: *ret lives until the loop's next turn. 0, -EBADMSG, -ENOMEM. */
bool vm_may_inspect(const struct vm *vm);
int vm_inspect(struct vm *vm, struct inspect **ret);

/* The operator's own service under that name, or NULL; port 0: on whichever port. */
const struct worker_service *vm_find_service(const struct vm *vm, const struct hostname *host, uint16_t port);
