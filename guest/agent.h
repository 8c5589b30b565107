/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The agent: the loop, the gate, and who is there. One thread. guest/serve puts it together; everybody else reaches
 * the others through it.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include <event2/event.h>

#include "guest/gate.h"
#include "proto/wb.pb-c.h"
#include "proto/wire/transport.h"

struct activation;
struct activation_record;
struct child;
struct clock_watch;
struct control_server;
struct exec_table;
struct files;
struct forwards;
struct memory_watch;
struct network;
struct resume_watch;
struct secret_store;
struct sentinel;
struct standstill_watch;

/* Why the loop ended; main acts on it. */
enum agent_end {
        AGENT_END_EXIT,
        AGENT_END_POWER_OFF,
        AGENT_END_REBOOT,
};

struct agent {
        struct event_base *base;
        struct gate gate;
        bool pid1;
        bool transparent;           /* names lead out too: the DNS stub is served, and made the machine's */
        bool proxy_variables;       /* workloads are told of the proxy */
        struct transport transport; /* where it listens and how it dials the host; path is main's */
        uint32_t port;
        uint64_t started_ns;
        struct rlimit inherited_nofile; /* what the supervisor gave: for children */
        char **workload_env; /* NAME=VALUE, NULL-terminated: what activation adds for workloads (proxy variables); or
                                NULL */

        struct exec_table *execs;
        struct control_server *controls;
        struct child *children;       /* guest/child: programs of the agent's own that run now */
        struct secret_store *secrets; /* of the last activation; NULL before it and after quiesce */
        struct event *secrets_timer;  /* the next expiry */
        struct network *network;
        struct files *files;
        struct forwards *forwards;
        bool disks_held; /* filesystems are frozen, as long as disks_fd is open (guest/filesystems_hold) */
        int disks_fd;
        struct memory_watch *memory;
        struct resume_watch *resume;
        struct sentinel *sentinel;
        struct clock_watch *clock;
        struct standstill_watch *standstill;
        struct activation *activation;  /* the one that runs now, or NULL */
        struct activation_record *last; /* the last one that ended; never NULL */

        struct event *signals[8];
        struct event *ending;
        enum agent_end end;
};

/* The loop ends soon: what is queued to conversations gets a moment to leave. The first call counts. */
void agent_end_soon(struct agent *agent, enum agent_end end);

/* Replaces the secrets by store (NULL: none); the old ones are wiped, and their files taken away from the execs. */
void agent_set_secrets(struct agent *agent, struct secret_store *store);

/* One was put or revoked: the next expiry may be another's. */
void agent_secrets_changed(struct agent *agent);

/* What secrets_timer calls: wipes the secrets whose time is up. userdata is the agent. */
void agent_on_expiry(evutil_socket_t fd, short events, void *userdata);
