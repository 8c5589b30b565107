/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The broker's end of its socket with the monitor: questions, each of which blocks until its answer is there, and what
 * the monitor says by itself, which is kept while a question is open. A monitor that is gone ends this process.
 */

#include <stddef.h>

#include <event2/event.h>

#include "broker/evidence.h"
#include "broker/ipc.h"
#include "proto/wire/transport.h"

struct monitor_client;

/* A frame of the monitor's own, IPC_START excepted. Its descriptors are the handler's. Called from the loop. */
typedef void (*monitor_client_handler)(void *userdata, const struct ipc_frame *frame, int *fds, size_t fds_n);

/* sock is the client's. */
int monitor_client_new(
        struct event_base *base, int sock, monitor_client_handler handler, void *userdata, struct monitor_client **ret);
void monitor_client_free(struct monitor_client *c); /* takes NULL */

int monitor_tell(struct monitor_client *c, enum ipc_kind kind, int result);

/* 0 (then *ret_pidfd is the caller's, -1 if there is no such process), or a negative errno. */
int monitor_ask_evidence(struct monitor_client *c, int pid, struct evidence *ret, int *ret_pidfd);

/* vmm_uid: IPC_NO_UID where it is not known. Both listeners, or none. */
int monitor_ask_listen(
        struct monitor_client *c, const struct transport *t, uint64_t vmm_uid, int *ret_egress_fd, int *ret_service_fd);
int monitor_ask_unlisten(struct monitor_client *c, const struct transport *t);
int monitor_ask_dial(struct monitor_client *c, const struct transport *t, int *ret_fd);

/* The interception CA's text; anew: of a new one. */
int monitor_ask_ca(struct monitor_client *c, bool anew, int *ret_fd);
