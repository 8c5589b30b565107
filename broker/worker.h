/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A worker: one thread, one event loop, the VMs that belong to it for their lives. What happens inside needs no lock;
 * from outside everything is a message. The broker's main thread owns the workers and calls what stands here.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/address.h"
#include "broker/audit.h"
#include "broker/policy.h"

struct ca;
struct inspect_trust;
struct worker;

/* An operator's own service (INTERFACES.md, services): dialled as it is, never resolved. */
struct worker_service {
        char *name; /* canonical */
        uint16_t *ports;
        size_t ports_n;
        char *connect; /* "10.0.0.5:443", "[2a0f::1]:443" or "unix:/run/mirror.sock"; checked */
};

/* What all workers share, immutable while they run. On SIGHUP the main thread sends a new one. Reference-counted by
 * worker_settings_*(). */
struct worker_settings {
        unsigned refs; /* private, atomic */
        struct floor floor;
        struct worker_service *services;
        size_t services_n;
        struct hostname *dns_servers; /* at least one */
        size_t dns_servers_n;
        uint64_t dns_timeout_ms;
        uint64_t dns_cache_max_s;
        uint64_t request_head_ms;
        uint64_t client_hello_ms;
        uint64_t connect_ms;
        uint64_t idle_ms;
        struct inspect_trust *trust; /* a reference; NULL: no TLS is intercepted */
        bool audit_required;
        pid_t own_pid; /* of the process that listens on the broker's own unix sockets; 0: none does */
};
struct worker_settings *worker_settings_ref(struct worker_settings *s);
void worker_settings_unref(struct worker_settings *s);

/* Starts the thread. 0 or a negative errno. */
int worker_new(struct audit *audit, struct worker_settings *settings, struct worker **ret);

/* Stops accepting, lets sessions end for at most drain_ms, then cuts them, joins the thread and frees all. */
void worker_drain_start(struct worker *w, uint64_t drain_ms);
void worker_free(struct worker *w);

int worker_set_settings(struct worker *w, struct worker_settings *settings);

/* A VM as its worker sees it. */
struct vm_config {
        const char *name;      /* copied */
        struct policy *policy; /* a reference is taken */
        int *listeners;        /* listening sockets of port 1025; the worker owns them from the call on */
        size_t listeners_n;
        int *service_listener; /* of port 1026, likewise; NULL: none */
        uint32_t vsock_cid;    /* of a VM on the shared AF_VSOCK listener, else 0 */
        bool ready;            /* egress open at once (agent: false) */
        struct ca *ca; /* the interception CA that its guest trusts; NULL: none, so its TLS is not intercepted */
};

struct vm;
struct capacity_share;

/* Each VM's share from now on. */
int worker_set_share(struct worker *w, const struct capacity_share *share);

/* Each waits until the worker has done it. 0, -EEXIST, -ENOENT, or another negative errno. */
int worker_vm_add(struct worker *w, const struct vm_config *config, struct vm **ret);
int worker_vm_remove(struct worker *w, struct vm *vm); /* all cut; vm is gone */
int worker_vm_set_policy(
        struct worker *w, struct vm *vm, struct policy *policy); /* live connections are judged again */
int worker_vm_set_ready(struct worker *w, struct vm *vm, bool ready, uint64_t generation, struct ca *ca); /* as above */
int worker_vm_revoke(struct worker *w, struct vm *vm); /* all cut, nothing new */

struct vm_stats {
        uint64_t sessions_open;
        uint64_t sessions_total;
        uint64_t allowed_total; /* connections that were opened, requests apart */
        uint64_t denied_total;
        uint64_t bytes_up;
        uint64_t bytes_down;
};
int worker_vm_stats(struct worker *w, struct vm *vm, struct vm_stats *ret);

/* A connection accepted from the shared AF_VSOCK listener of a port, with its peer's CID: the worker that has the VM
 * takes the descriptor. */
int worker_vsock_connection(struct worker *w, struct vm *vm, uint32_t port, int fd);
