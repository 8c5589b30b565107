/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host's ends of the connections: a unix socket for each, and the table that finds them.
 *
 * A stream lives until both sides are done: the guest's once its RST is sent or came (then it leaves the table and its
 * ports are free), the host's once everything the guest has sent is written (a slow reader keeps its bytes when the
 * guest has long gone).
 *
 * Sockets are watched edge-triggered; `readable` remembers the edge until a read says EAGAIN, so that a stream which
 * must wait for the guest's credit or buffers costs no system call.
 *
 * The program ignores SIGPIPE: a host that has gone is an error of a write.
 *
 * Streams with something for the guest stand in the ready list, in turn. The device takes them from there.
 */

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "tools/wbvsock/connection.h"

struct evbuffer;

enum stream_origin {
        STREAM_BY_GUEST,
        STREAM_BY_HOST,
        STREAM_ORIGINS,
};

struct stream {
        struct connection connection;
        struct streams *owner;
        enum stream_origin origin;
        LIST_ENTRY(stream) all;
        LIST_ENTRY(stream) bucket; /* if in_table */
        TAILQ_ENTRY(stream) ready; /* if in_ready */
        bool in_table;
        bool in_ready;
        bool readable;   /* a read may give something */
        bool ended;      /* the host's EOF has been read */
        bool unwritable; /* the host takes nothing any more */
        int fd;          /* -1: none yet, or closed */
        unsigned dials;
        struct event read_event;
        struct event write_event; /* while there is a backlog */
        struct event timer;
        struct evbuffer
                *backlog; /* what the host could not take yet, at most the connection's buf_alloc; NULL: nothing */
};

LIST_HEAD(stream_list, stream);
TAILQ_HEAD(stream_queue, stream);

struct streams_setup {
        struct event_base *base;
        const char *path;      /* a guest's connection to port P is dialled at PATH_P; outlives the streams */
        uint32_t most;         /* for each origin, so that a guest cannot keep the host out */
        uint32_t buffer_bytes; /* of each connection */
};

struct streams {
        struct streams_setup setup;
        struct stream_list all;
        struct stream_queue ready;
        struct stream_list *buckets;
        uint32_t buckets_mask;
        uint32_t seed; /* so that a guest cannot aim at one bucket */
        uint32_t next_host_port;
        uint32_t n[STREAM_ORIGINS];
        struct event *wake; /* activated when a stream becomes ready, borrowed; */
        bool quiet;         /* but not while the device is at work, which looks at the list anyway */
        uint64_t complained_ns;
};

/* 0 or -ENOMEM. */
int streams_init(struct streams *ss, const struct streams_setup *setup, uint32_t seed, struct event *wake);

/* Closes all connections without a word to the guest. */
void streams_drop(struct streams *ss);

void streams_done(struct streams *ss);

struct stream *streams_find(struct streams *ss, uint32_t guest_port, uint32_t host_port);

/* The first ready stream, out of the list; NULL if there is none. Give it back by stream_settle() or streams_unget().
 */
struct stream *streams_get_ready(struct streams *ss);
void streams_unget(struct streams *ss, struct stream *s);

/*
 * A guest's REQUEST: dials. -EUSERS (the bound), or -ENOMEM: answer with RST. What goes wrong later the stream tells by
 * itself.
 */
int streams_accept(struct streams *ss, const struct packet *request);

/* A host's connection that asked for a port of the guest. Takes fd, always. 0, -EUSERS or -ENOMEM. */
int streams_connect(struct streams *ss, uint32_t guest_port, int fd);

/* A packet of this connection with its payload, which is read only now. May free s. */
void stream_receive(struct stream *s, const struct packet *p, const struct iovec *payload, unsigned payload_n);

/* The guest broke the rules: RST. May free s. */
void stream_abort(struct stream *s);

/*
 * Reads what the host sent. Answers the bytes; 0: nothing now, or the end, which the connection then knows.
 * stream_settle() is to follow.
 */
size_t stream_read(struct stream *s, const struct iovec *iov, unsigned iov_n);

/* Whether stream_read() may give something that the guest can take; *ret_most is its credit. */
bool stream_wants_read(struct stream *s, uint32_t *ret_most);

/* After any change: puts s into the ready list if it has something, frees what is over. s may be gone. */
void stream_settle(struct stream *s);
