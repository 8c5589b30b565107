/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host's side of one conversation with an agent, over a connected socket (proto/wire/transport.h dials it).
 *
 * struct client is for an event loop: what is sent is queued up to CLIENT_QUEUE_MAX_BYTES, what comes is checked by the
 * codec before anybody sees it. struct client_call is for a program that has nothing else to do meanwhile: send,
 * receive, done.
 *
 * The process must ignore SIGPIPE.
 */

#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>

#include "proto/wb.pb-c.h"
#include "proto/wire/frame.h"

struct client;

/* All are called from the loop, never from within a function of this header. Each may call client_free(). */
struct client_handler {
        void (*message)(void *userdata, const Wb__FromAgent *m); /* m lives for the call */
        void (*drained)(void *userdata); /* client_queued() fell below CLIENT_LOW_BYTES; may be NULL */

        /*
         * The conversation is over: 0 when the agent closed it between two frames, -EPIPE in the middle of one,
         * -EBADMSG for a frame that is none of the protocol's, or the socket's negative errno. Called once; nothing is
         * called after it.
         */
        void (*closed)(void *userdata, int error);
};

#define CLIENT_LOW_BYTES       (128u * 1024u)
#define CLIENT_QUEUE_MAX_BYTES (8u * 1024u * 1024u) /* the largest start of an exec, and a frame */

/*
 * fd is the client's from here on, also when this fails. handler and userdata live until client_free(). 0 or a negative
 * errno.
 */
int client_new(
        struct event_base *base, int fd, const struct client_handler *handler, void *userdata, struct client **ret);
void client_free(struct client *c);

/*
 * Queues a message. 0; -EMSGSIZE (larger than a frame may be), -ENOBUFS (the queue is full: wait for drained()), -EPIPE
 * (the conversation is over; closed() has told or will tell), -ENOMEM.
 */
int client_send(struct client *c, const Wb__ToAgent *m);

/* Bytes that the socket has not taken yet. */
size_t client_queued(const struct client *c);

/*
 * A conversation without a loop. Every wait ends at deadline_ns (CLOCK_MONOTONIC; UINT64_MAX: never) with -ETIMEDOUT.
 * The descriptor stays the caller's and must be non-blocking.
 */
struct client_call {
        int fd;
        uint64_t deadline_ns;
        struct frame_reader reader;
        uint8_t *bytes; /* received and not yet read as frames: [at, n) */
        size_t at, n;
};

void client_call_init(struct client_call *call, int fd, uint64_t deadline_ns);
void client_call_done(struct client_call *call);

/* 0, -ETIMEDOUT, -EMSGSIZE, -EPIPE or another errno of the socket. */
int client_call_send(struct client_call *call, const Wb__ToAgent *m);

/* The next message; codec_free_from_agent() frees it. 0, -ETIMEDOUT, -EPIPE (closed), -EBADMSG, or a negative errno. */
int client_call_receive(struct client_call *call, Wb__FromAgent **ret);

/* One question and its one answer. */
int client_ask(int fd, uint64_t deadline_ns, const Wb__ToAgent *question, Wb__FromAgent **ret_answer);
