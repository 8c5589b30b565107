/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What monitor and broker say to each other over a SEQPACKET socketpair: frames of one fixed size, some with
 * descriptors. The broker asks one thing at a time and waits for its answer; the monitor never waits for the broker.
 * The monitor takes every frame as hostile: a broker that a guest took over can ask for no more than what stands here.
 */

#include <stddef.h>
#include <stdint.h>

#include "broker/evidence.h"

#define IPC_PATH_BYTES 108u /* sun_path, unix(7) */

enum ipc_kind {
        /* monitor to broker */
        IPC_START,          /* descriptors: packed files, control listener, the notary's socket (broker/audit_notary.h),
                               both vsock listeners if there are any */
        IPC_RELOAD,         /* descriptor: packed files */
        IPC_RELOAD_REFUSED, /* result; the files are not fit to be loaded */
        IPC_DRAIN,          /* number: milliseconds */
        IPC_ANSWER,         /* result; to the broker's last question */

        /* broker to monitor */
        IPC_READY,        /* all of IPC_START stands */
        IPC_RELOADED,     /* result */
        IPC_WANT_RELOAD,  /* as SIGHUP; ends in IPC_RELOAD or IPC_RELOAD_REFUSED */
        IPC_ASK_EVIDENCE, /* number: pid. Answer: evidence, and a pidfd if it exists */
        IPC_ASK_LISTEN,   /* transport, path, number: uid that must be able to connect, or IPC_NO_UID. Answer: the
                             listeners of WB_PORT_EGRESS and WB_PORT_SERVICE */
        IPC_ASK_UNLISTEN, /* transport, path: of an earlier IPC_ASK_LISTEN. Answer: result */
        IPC_ASK_DIAL,     /* transport, path. Answer: a socket that is connected to the guest's side */
        IPC_ASK_CA,       /* number: 1: a new one. Answer: a descriptor with the interception CA's text */
        IPC_KIND_MAX_,
};

#define IPC_NO_UID UINT64_MAX

struct ipc_frame {
        uint32_t kind;  /* enum ipc_kind */
        int32_t result; /* 0 or a negative errno */
        uint64_t number;
        uint32_t transport; /* enum transport_kind */
        char path[IPC_PATH_BYTES];
        struct evidence evidence;
};

#define IPC_FDS_MAX 5u

/* Both ends in order: [0] the monitor's, [1] the broker's. */
int ipc_pair(int ret_fds[2]);

/* 0, -EAGAIN, or a negative errno. */
int ipc_send(int sock, const struct ipc_frame *frame, const int *fds, size_t fds_n);

/*
 * Receives one; checks its size, that its kind is one, and that texts end. fds has room for IPC_FDS_MAX; they are the
 * caller's. 0; -EAGAIN; -EPIPE when the other end is gone; -EBADMSG.
 */
int ipc_receive(int sock, struct ipc_frame *ret, int *ret_fds, size_t *ret_fds_n);
