/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/control.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/control_pool.h"
#include "guest/resume.h"
#include "proto/base/cleanup.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"

#define OPENING_MS     10000 /* a peer that has not said what it wants by then does not mean it */
#define LINGERING_MS   500   /* for the peer to read our end before its own unread bytes would reset it */
#define IOV_MAX_USED   16
#define READS_PER_TURN 4 /* then others have theirs */

enum control_state {
        CONTROL_OPENING,   /* the first message has not come */
        CONTROL_OPEN,      /* a handler runs it */
        CONTROL_FINISHING, /* what is queued leaves */
        CONTROL_LINGERING, /* all has left and the peer was told; what still comes is thrown away */
        CONTROL_DEAD,      /* freed at the end of the event callback that finds it */
};

/* By state: what may follow, and how long it may last. */
static const struct {
        unsigned next;
        unsigned limit_ms; /* 0: any time */
} states[] = {
        [CONTROL_OPENING] = {1u << CONTROL_OPEN | 1u << CONTROL_FINISHING | 1u << CONTROL_DEAD, OPENING_MS},
        [CONTROL_OPEN] = {1u << CONTROL_FINISHING | 1u << CONTROL_DEAD, 0},
        [CONTROL_FINISHING] = {1u << CONTROL_LINGERING | 1u << CONTROL_DEAD, 0},
        [CONTROL_LINGERING] = {1u << CONTROL_DEAD, LINGERING_MS},
        [CONTROL_DEAD] = {1u << CONTROL_DEAD, 0},
};
static_assert(sizeof(states) / sizeof(states[0]) == CONTROL_DEAD + 1, "a row for each state");

struct out_frame {
        struct out_frame *next;
        uint8_t *bytes;
        size_t n;
};

struct control {
        struct control_pool *pool;
        struct control *older, *newer;
        enum control_state state;
        int fd;
        struct event readable, writable, timer;

        struct frame_reader reader;
        size_t reader_charged; /* of pool->reader_bytes */
        size_t ahead;          /* bytes read behind the frame that is being taken */

        struct out_frame *first, *last;
        size_t first_sent;
        size_t queued;
        bool above_low;  /* drained() is owed */
        bool held;       /* what is queued waits for control_release() */
        bool broken;     /* writing failed */
        int error;       /* errno of what broke it, reading or writing; 0: nothing did */
        bool peer_ended; /* it will say nothing more */

        const struct control_handler *handler;
        void *userdata;
};

/* The one place that changes the state and what the loop waits for in it. */
static void set_state(struct control *c, enum control_state state)
{
        assert(states[c->state].next & 1u << state);
        c->state = state;
        (void)evtimer_del(&c->timer);
        if (states[state].limit_ms) {
                unsigned ms = states[state].limit_ms;
                struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};

                (void)evtimer_add(&c->timer, &limit);
        }
        if (state == CONTROL_DEAD) {
                (void)event_del(&c->readable);
                (void)event_del(&c->writable);
        }
}

/* ---- output */

static void free_first(struct control *c)
{
        struct out_frame *f = c->first;

        c->first = f->next;
        if (!c->first)
                c->last = NULL;
        c->first_sent = 0;
        free(f->bytes);
        free(f);
}

static void take_sent(struct control *c, size_t n)
{
        c->queued -= n;
        while (n && c->first) {
                size_t left = c->first->n - c->first_sent;

                if (n < left) {
                        c->first_sent += n;
                        return;
                }
                n -= left;
                free_first(c);
        }
}

/* Writes as much as the socket takes. 0 (also if some is left), or -EPIPE. */
static int flush(struct control *c)
{
        while (c->first) {
                struct iovec iov[IOV_MAX_USED];
                struct msghdr m = {.msg_iov = iov};
                ssize_t put;

                for (struct out_frame *f = c->first; f && m.msg_iovlen < IOV_MAX_USED; f = f->next) {
                        size_t skip = f == c->first ? c->first_sent : 0;

                        iov[m.msg_iovlen++] = (struct iovec){f->bytes + skip, f->n - skip};
                }
                put = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0 && (errno == EAGAIN || errno == ENOBUFS))
                        return 0;
                if (put < 0) {
                        c->error = errno;
                        return -EPIPE;
                }
                take_sent(c, (size_t)put);
        }
        return 0;
}

/* A unix socket's peer reads what it was sent also after our close, unless we leave something of its own unread. */
static bool needs_no_lingering(const struct control *c)
{
        int unread = 0;

        return c->pool->agent->transport.kind == TRANSPORT_UNIX && ioctl(c->fd, FIONREAD, &unread) == 0 && !unread;
}

static void end_output(struct control *c)
{
        bool at_once = needs_no_lingering(c);

        /* A peer that hears the end may count on our descriptor being closed, where it is closed at once. */
        if (!at_once)
                (void)shutdown(c->fd, SHUT_WR);
        set_state(c, CONTROL_LINGERING);
        if (c->peer_ended || at_once)
                (void)evtimer_add(&c->timer, &(struct timeval){0});
}

/* After any flush: waits for the socket if something is left, else goes on to what was waiting for that. */
static void flushed(struct control *c, int r)
{
        if (r < 0) {
                c->broken = true;
                event_active(&c->writable, EV_WRITE, 0); /* never from within control_send() */
        } else if (c->first) {
                (void)event_add(&c->writable, NULL);
        } else if (c->state == CONTROL_FINISHING) {
                end_output(c);
        }
}

int control_send(struct control *c, const Wb__FromAgent *m)
{
        struct out_frame *f;
        int r;

        if (c->broken || (c->state != CONTROL_OPENING && c->state != CONTROL_OPEN))
                return -EPIPE;
        if (c->queued >= CONTROL_MOST_BYTES)
                return -ENOBUFS;
        f = calloc(1, sizeof(*f));
        if (!f)
                return -ENOMEM;
        r = codec_pack_from_agent(m, &f->bytes, &f->n);
        if (r < 0) {
                free(f);
                return r;
        }
        if (c->last)
                c->last->next = f;
        else
                c->first = f;
        c->last = f;
        c->queued += f->n;
        if (c->first == f && !c->held)
                flushed(c, flush(c));
        if (c->queued >= CONTROL_LOW_BYTES)
                c->above_low = true;
        return c->broken ? -EPIPE : 0;
}

void control_printable(const char *text, char *ret_text, size_t room)
{
        size_t n = 0;

        for (; *text && n + 5 < room; text++) {
                unsigned char b = (unsigned char)*text;

                n += (size_t)sprintf(ret_text + n, isprint(b) ? "%c" : "\\x%02x", b);
        }
        ret_text[n] = '\0';
}

int control_send_error(struct control *c, const char *reason, const char *detail)
{
        char text[512];
        Wb__Error error = WB__ERROR__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        control_printable(detail, text, sizeof(text));
        error.reason = (char *)(uintptr_t)reason;
        error.detail = text;
        m.body_case = WB__FROM_AGENT__BODY_ERROR;
        m.error = &error;
        return control_send(c, &m);
}

size_t control_queued(const struct control *c)
{
        return c->queued;
}

void control_hold(struct control *c)
{
        c->held = !c->first; /* else the loop waits for the socket already */
}

void control_release(struct control *c)
{
        if (c->held && c->first)
                flushed(c, flush(c));
        c->held = false;
}

void control_finish(struct control *c)
{
        if (c->state != CONTROL_OPENING && c->state != CONTROL_OPEN)
                return;
        c->handler = NULL;
        set_state(c, CONTROL_FINISHING);
        if (!c->broken && !c->first)
                end_output(c);
}

/* ---- life */

void control_set_handler(struct control *c, const struct control_handler *handler, void *userdata)
{
        c->handler = handler;
        c->userdata = userdata;
        if (c->state == CONTROL_OPENING)
                set_state(c, CONTROL_OPEN);
}

void control_set_opening_handler(struct control *c, const struct control_handler *handler, void *userdata)
{
        c->handler = handler;
        c->userdata = userdata;
}

struct agent *control_agent(struct control *c)
{
        return c->pool->agent;
}

int control_descriptor(const struct control *c)
{
        return c->state == CONTROL_OPENING && !c->ahead && !c->first ? c->fd : -EPROTO;
}

void control_hand_over(struct control *c)
{
        set_state(c, CONTROL_DEAD); /* freed by the callback that we are in; a descriptor's close ends no connection */
}

/* The peer is gone, or we are through with it; whoever runs the conversation hears of it once. */
static void die(struct control *c)
{
        const struct control_handler *handler = c->handler;

        if (c->state == CONTROL_DEAD)
                return;
        c->handler = NULL;
        set_state(c, CONTROL_DEAD);
        if (handler)
                handler->closed(c->userdata);
}

void control_free(struct control *c)
{
        die(c);
        (void)evtimer_del(&c->timer);
        c->pool->reader_bytes -= c->reader_charged;
        c->pool->n--;
        if (c->older)
                c->older->newer = c->newer;
        else
                c->pool->oldest = c->newer;
        if (c->newer)
                c->newer->older = c->older;
        else
                c->pool->newest = c->older;
        while (c->first)
                free_first(c);
        frame_reader_done(&c->reader);
        close_fd(c->fd);
        free(c);
}

bool control_is_silent(const struct control *c)
{
        return c->state == CONTROL_OPENING;
}

struct control *control_newer(const struct control *c)
{
        return c->newer;
}

bool control_was_reset(const struct control *c)
{
        return c->pool->agent->transport.kind != TRANSPORT_UNIX && (c->error == ENOTCONN || c->error == ECONNRESET);
}

/* If that was a resume, the guest stands still before whoever runs the conversation hears of its end. */
static void broke(struct control *c)
{
        struct resume_watch *resume = c->pool->agent->resume;

        if (resume && c->error)
                resume_connection_broke(resume, c->fd, c->error);
        die(c);
}

static void break_off(struct control *c, const char *detail)
{
        const struct control_handler *handler = c->handler;

        (void)control_send_error(c, "protocol", detail);
        control_finish(c);
        if (handler)
                handler->closed(c->userdata);
}

/* ---- input */

static void open_conversation(struct control *c, const Wb__ToAgent *m)
{
        if (c->pool->open(c, m) < 0)
                break_off(c, "this message opens no conversation");
}

static void take_frame(struct control *c, const uint8_t *payload, size_t n)
{
        Wb__ToAgent *m = NULL;
        int r = codec_unpack_to_agent(payload, n, &m);

        if (r == 0 && c->state == CONTROL_OPENING && !c->handler)
                open_conversation(c, m);
        else if (r == 0 && c->handler)
                c->handler->message(c->userdata, m);
        else if (r != 0)
                break_off(c, r == CODEC_E_MALFORMED ? "not a message of this protocol" : "no memory for this message");
        codec_free_to_agent(m);
}

/* Counts what the reader holds now. -ENOBUFS if that is too much for all conversations together. */
static int charge_reader(struct control *c)
{
        struct control_pool *pool = c->pool;

        pool->reader_bytes += c->reader.room;
        pool->reader_bytes -= c->reader_charged;
        c->reader_charged = c->reader.room;
        if (pool->reader_bytes > CONTROL_READERS_MAX_BYTES && c->reader.room > CONTROL_READER_KEEP_BYTES)
                return -ENOBUFS;
        return 0;
}

static bool is_listening(const struct control *c)
{
        return c->state == CONTROL_OPENING || c->state == CONTROL_OPEN;
}

/* Cuts bytes into frames and has each taken. */
static void take_bytes(struct control *c, const uint8_t *p, size_t n)
{
        while (n && is_listening(c)) {
                bool opening = c->state == CONTROL_OPENING;
                const uint8_t *payload;
                size_t payload_n;
                int r = frame_read(&c->reader, &p, &n, &payload, &payload_n);

                if (charge_reader(c) < 0 && r >= 0)
                        r = -ENOBUFS;
                if (r == FRAME_E_MORE)
                        return;
                if (r < 0) {
                        break_off(
                                c, r == -EMSGSIZE ? "a frame is larger than 1 MiB" : "too much is being sent at once");
                        return;
                }
                c->ahead = n;
                take_frame(c, payload, payload_n);
                if (opening)
                        explicit_bzero((uint8_t *)(uintptr_t)payload, payload_n); /* it may have been secrets */
                if (c->reader.room > CONTROL_READER_KEEP_BYTES)
                        frame_reader_done(&c->reader);
                (void)charge_reader(c);
        }
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct control *c = userdata;
        struct control_pool *pool = c->pool;

        (void)events;
        for (int i = 0; i < READS_PER_TURN && c->state != CONTROL_DEAD; i++) {
                bool opening = c->state == CONTROL_OPENING;
                ssize_t got = recv(fd, pool->buffer, sizeof(pool->buffer), MSG_DONTWAIT);

                if (got < 0 && (errno == EAGAIN || errno == EINTR))
                        break;
                if (got == 0 && c->state == CONTROL_FINISHING) {
                        c->peer_ended = true; /* it may read yet */
                        (void)event_del(&c->readable);
                        break;
                }
                if (got <= 0) {
                        c->error = got < 0 ? errno : 0;
                        broke(c);
                        break;
                }
                take_bytes(c, pool->buffer, (size_t)got);
                if (opening)
                        explicit_bzero(pool->buffer, (size_t)got);
                if ((size_t)got < sizeof(pool->buffer))
                        break;
        }
        if (c->state == CONTROL_DEAD)
                control_free(c);
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct control *c = userdata;

        (void)fd;
        (void)events;
        if (!c->broken)
                flushed(c, flush(c));
        if (c->broken)
                broke(c);
        if (c->state == CONTROL_DEAD) {
                control_free(c);
                return;
        }
        if (c->above_low && c->queued < CONTROL_LOW_BYTES) {
                c->above_low = false;
                if (c->handler && c->handler->drained)
                        c->handler->drained(c->userdata);
        }
}

/* A state's time is up: a silent opener, or a peer that keeps talking after the end. */
static void on_timer(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        control_free(userdata);
}

int control_new(struct control_pool *pool, int fd)
{
        struct control *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->pool = pool;
        pool->n++;
        c->fd = fd;
        c->older = pool->newest;
        if (c->older)
                c->older->newer = c;
        else
                pool->oldest = c;
        pool->newest = c;
        (void)event_assign(&c->readable, pool->agent->base, fd, EV_READ | EV_PERSIST, on_readable, c);
        (void)event_assign(&c->writable, pool->agent->base, fd, EV_WRITE, on_writable, c);
        (void)evtimer_assign(&c->timer, pool->agent->base, on_timer, c);
        (void)event_add(&c->readable, NULL);
        (void)evtimer_add(&c->timer, &(struct timeval){.tv_sec = OPENING_MS / 1000});
        return 0;
}
