/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One exec as its client sees it, over a conversation of its own: windows in both directions, offsets, one outcome.
 *
 * Output comes as fast as the caller gives credit back: at most EXEC_CLIENT_WINDOW_BYTES of each stream are on their
 * way or in the caller's hands, until exec_client_consumed() says that some were dealt with. A stream that is not
 * consumed holds up itself alone. Input may be sent as far as exec_client_input_room() goes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <event2/event.h>

#include "proto/wb.pb-c.h"

struct exec_client;

#define EXEC_CLIENT_WINDOW_BYTES (1024u * 1024u) /* per stream; hides a round trip of 1 ms at 1 GB/s */

/* How an exec ended for its client. Texts live for the call. */
struct exec_outcome {
        /*
         * The word of cases/README-exec.md. Also "connection_lost": error says why (negative errno; 0: the agent closed
         * without a result), and of the command itself nothing is known.
         */
        const char *reason;
        const char *detail; /* what is at fault; "" where there is nothing to say */
        int exit_status;    /* what a wrapper of the command ends with: its status, 128+n, 124 to 127 */
        int error;
        const Wb__ExecResult *result; /* NULL when nothing was started, or the connection was lost */
};

/* All are called from the loop. Each may call exec_client_free(). */
struct exec_client_handler {
        void (*started)(void *userdata, const char *id, pid_t pid); /* may be NULL */

        /*
         * Bytes of WB__STREAM__STDOUT or STDERR, in order. offset is of data[0] since the stream's start: where it is
         * larger than expected, bytes were lost to a replay ring's bound. eof comes once, with or without data. data
         * lives for the call.
         */
        void (*output)(void *userdata, Wb__Stream stream, uint64_t offset, const uint8_t *data, size_t n, bool eof);

        void (*input_room)(void *userdata); /* exec_client_input_room() was 0 and is not any more; may be NULL */
        void (*ended)(void *userdata, const struct exec_outcome *outcome); /* once, and last but for closed() */

        /* After ended(): the agent has let go of the conversation too, and of all that the exec cost it. May be NULL.
         */
        void (*closed)(void *userdata);
};

/*
 * Opens the conversation on fd, which is the client's from here on, also on failure. output_window_bytes of the message
 * is set here. 0; EXEC_CLIENT_E_TOO_LONG (argv or environment do not fit, nothing was sent: reason args_too_long); or a
 * negative errno.
 */
#define EXEC_CLIENT_E_TOO_LONG 1
int exec_client_start(struct event_base *base, int fd, Wb__ExecStart *start, const struct exec_client_handler *handler,
        void *userdata, struct exec_client **ret);
int exec_client_attach(struct event_base *base, int fd, Wb__ExecAttach *attach,
        const struct exec_client_handler *handler, void *userdata, struct exec_client **ret);

/* Closes the connection: an exec that is not detached ends with it. */
void exec_client_free(struct exec_client *x);

/* n more bytes of the stream have been dealt with. */
void exec_client_consumed(struct exec_client *x, Wb__Stream stream, size_t n);

/* How many bytes exec_client_input() takes now; 0 before started(), after end of file, and once the exec has ended. */
size_t exec_client_input_room(const struct exec_client *x);

/* n is at most exec_client_input_room(). 0 or a negative errno. End of file needs no room. */
int exec_client_input(struct exec_client *x, const uint8_t *data, size_t n);
int exec_client_input_eof(struct exec_client *x);

/* To the command's process group. May be called before started(): the agent keeps the order. 0 or a negative errno. */
int exec_client_signal(struct exec_client *x, unsigned number);
int exec_client_resize(struct exec_client *x, unsigned rows, unsigned columns);

/* What a wrapper of a command ends with when it was not started for that reason: 127, 126 or 125. */
int exec_client_refusal_status(const char *reason);
