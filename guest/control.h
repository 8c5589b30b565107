/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One conversation with the host: a connection on port 1024. control.c reads frames, has the codec check them, opens
 * the conversation by its first message, and hands what follows to whoever runs it (activate, exec). Output is queued
 * here; whoever runs the conversation looks at control_queued() before it produces more, so a peer that does not read
 * stalls only itself.
 */

#include <stdbool.h>
#include <stddef.h>

#include "proto/wb.pb-c.h"

struct agent;
struct control;

/* How the owner of an opened conversation hears of it. All are called from the loop; closed exactly once, then the
 * control is gone. */
struct control_handler {
        void (*message)(void *userdata, const Wb__ToAgent *m); /* m lives for the call */
        void (*drained)(void *userdata);                       /* control_queued() fell below CONTROL_LOW_BYTES */
        void (*closed)(void *userdata);                        /* the peer went away, or broke the rules */
};

#define CONTROL_LOW_BYTES  (128u * 1024u)
#define CONTROL_HIGH_BYTES (256u * 1024u)       /* stop producing above this */
#define CONTROL_MOST_BYTES (4u * 1024u * 1024u) /* a list's answer may be large */

/* Hands the conversation over. handler and userdata live until closed() or control_finish(). */
void control_set_handler(struct control *c, const struct control_handler *handler, void *userdata);

/*
 * The opening goes on in further messages: the handler takes them, and the conversation stays what it is, with the time
 * that an opening has and the wiping of what it said.
 */
void control_set_opening_handler(struct control *c, const struct control_handler *handler, void *userdata);

/*
 * Queues a message, or sends it at once if nothing is queued. 0; -EPIPE (the peer is gone), -ENOMEM, -EMSGSIZE,
 * -ENOBUFS (CONTROL_MOST_BYTES are queued: the caller did not look at control_queued()). It never calls the handler:
 * what it finds of the peer's end comes from the loop.
 */
int control_send(struct control *c, const Wb__FromAgent *m);

/* A workload's bytes as text that a message may hold: what is not printable is escaped, what has no room is left out.
 */
void control_printable(const char *text, char *ret_text, size_t room);

/* Shorthand for Error. The detail is made printable. */
int control_send_error(struct control *c, const char *reason, const char *detail);

/* In closed(): the device dropped this connection with all others, as it does when the machine is resumed; the peer did
 * not go away. */
bool control_was_reset(const struct control *c);

size_t control_queued(const struct control *c);

/* What is sent in between leaves as one. */
void control_hold(struct control *c);
void control_release(struct control *c);

/* Sends what is queued, then closes; closed() is not called any more. */
void control_finish(struct control *c);

struct agent *control_agent(struct control *c);

/*
 * For a conversation that another process goes on with, from within its opening: the descriptor to give to that
 * process, or -EPROTO if bytes behind the opening have been read already. Once it has it, control_hand_over() lets go
 * of the conversation without a word.
 */
int control_descriptor(const struct control *c);
void control_hand_over(struct control *c);
