/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The agent's ends of a command's streams: output from a pipe (or terminal) into a replay ring, as far as its readers
 * allow; input from a bounded buffer into a pipe (or terminal), as fast as the command reads.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/replay.h"

/* ---- output */

enum output_state {
        OUTPUT_OPEN,
        OUTPUT_LAST,   /* no more than up to last_offset */
        OUTPUT_CLOSED, /* the descriptor is gone; what is in the ring stays */
};

/* Embedded in its exec. */
struct output {
        int fd;
        struct event readable;
        enum output_state state;
        struct replay replay;
        uint64_t allowed_offset; /* is read up to here; the readers' doing */
        uint64_t last_offset;
        bool cut;                                        /* closed while somebody could still have written */
        void (*moved)(struct output *o, void *userdata); /* bytes came, or it closed */
        void *userdata;
};

/* fd is non-blocking and becomes the output's. Nothing is read before output_allow(). */
void output_open(
        struct output *o, struct event_base *base, int fd, void (*moved)(struct output *, void *), void *userdata);

/* Bytes up to that offset of the stream may be read, also if they push others out of the ring. */
void output_allow(struct output *o, uint64_t offset);

/* The command has ended: what is in the pipe now was written before and will not be lost. */
void output_leader_ended(struct output *o);

/* The wait is over: what the command left is still read, then the stream is closed. May call moved(). */
void output_cut(struct output *o);

/* Closes now; what is in the ring stays. */
void output_close(struct output *o);

/* Closes and frees. */
void output_done(struct output *o);

/* ---- input */

#define INPUT_WINDOW_BYTES (256u * 1024u)

struct input {
        int fd; /* -1: closed */
        bool terminal;
        bool eof; /* came; the descriptor closes once the rest is written */
        struct event writable;
        struct evbuffer *buffer;
        uint64_t offset;                                   /* of what came */
        size_t credit_bytes;                               /* written, and not given back yet */
        void (*written)(struct input *in, void *userdata); /* credit_bytes grew */
        void *userdata;
};

/* 0 or -ENOMEM (fd is then the caller's still). */
int input_open(struct input *in, struct event_base *base, int fd, bool terminal,
        void (*written)(struct input *, void *), void *userdata);

/*
 * Takes the next bytes. 0; -EPROTO (more than the window allows, a gap, or bytes after the end of file); -ENOMEM. What
 * comes after the command closed its end is thrown away.
 */
int input_take(struct input *in, uint64_t offset, const uint8_t *data, size_t n, bool eof);

void input_done(struct input *in);
