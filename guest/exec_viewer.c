/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "guest/exec_internal.h"
#include "guest/pty.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"

/* A client that is attached to a detached exec and does not read holds it up for as long, then it misses bytes. */
#define PATIENCE_MS 250

/* Input credit is given back in pieces of this size: the rest of the window is room enough meanwhile. */
#define INPUT_CREDIT_BYTES (64u * 1024u)

static const Wb__Stream stream_numbers[EXEC_STREAMS] = {WB__STREAM__STDOUT, WB__STREAM__STDERR};

/* ---- how far the command may write */

/*
 * The ring holds what its slowest reader has not been sent yet. The owner is waited for as long as it takes, others for
 * as long as they move. Without a reader the command writes as it likes, and the ring keeps the last of it.
 */
static uint64_t allowed(const struct exec *x, int stream)
{
        uint64_t least = UINT64_MAX;
        const struct viewer *v;

        LIST_FOREACH (v, &x->viewers, entry)
                if (!v->overrun && v->cursor[stream].offset < least)
                        least = v->cursor[stream].offset;
        return least == UINT64_MAX ? UINT64_MAX : least + REPLAY_MAX_BYTES;
}

static bool is_held_up(const struct output *o)
{
        return o->state != OUTPUT_CLOSED && o->replay.end >= o->allowed_offset;
}

static void allow(struct exec *x)
{
        const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
        bool held_up = false, by_other = false;
        const struct viewer *v;

        for (int i = 0; i < EXEC_STREAMS; i++) {
                output_allow(&x->output[i], allowed(x, i));
                held_up |= is_held_up(&x->output[i]);
        }
        LIST_FOREACH (v, &x->viewers, entry)
                by_other |= !v->owner && !v->overrun;
        if (held_up && by_other && !evtimer_pending(&x->patience, NULL))
                (void)evtimer_add(&x->patience, &patience);
}

static void on_patience(evutil_socket_t fd, short events, void *userdata)
{
        struct exec *x = userdata;
        uint64_t now_ns = clock_monotonic_ns();
        struct viewer *v;

        (void)fd;
        (void)events;
        LIST_FOREACH (v, &x->viewers, entry)
                if (!v->owner && now_ns - v->moved_ns >= PATIENCE_MS * NSEC_PER_MSEC)
                        v->overrun = true;
        allow(x);
}

/* ---- what is sent */

static void free_viewer(struct viewer *v)
{
        LIST_REMOVE(v, entry);
        free(v);
}

void viewer_say_started(struct viewer *v)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ExecStarted started = WB__EXEC_STARTED__INIT;

        started.id = v->exec->id;
        started.pid = v->exec->pid;
        started.input_window_bytes = v->opener ? INPUT_WINDOW_BYTES : 0;
        m.body_case = WB__FROM_AGENT__BODY_EXEC_STARTED;
        m.exec_started = &started;
        (void)control_send(v->control, &m);
}

void viewers_say_started(struct exec *x)
{
        struct viewer *v;

        LIST_FOREACH (v, &x->viewers, entry)
                viewer_say_started(v);
}

/* The next chunk of a stream, if there is one that may go. */
static bool send_chunk(struct viewer *v, int stream)
{
        const struct output *o = &v->exec->output[stream];
        struct cursor *at = &v->cursor[stream];
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Chunk chunk = WB__CHUNK__INIT;
        size_t n;

        if (at->eof_sent)
                return false;
        if (at->offset < o->replay.start)
                at->offset = o->replay.start; /* what it missed is what the offset skips */
        chunk.data.data = (uint8_t *)(uintptr_t)replay_at(&o->replay, at->offset, &n);
        if (n > at->credit_bytes)
                n = (size_t)at->credit_bytes;
        if (n > WB_CHUNK_MAX_BYTES)
                n = WB_CHUNK_MAX_BYTES;
        chunk.stream = stream_numbers[stream];
        chunk.offset = at->offset;
        chunk.data.len = n;
        chunk.eof = o->state == OUTPUT_CLOSED && at->offset + n == o->replay.end;
        if (!n && !chunk.eof)
                return false;
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        if (control_send(v->control, &m) < 0)
                return false; /* its end comes from the loop */
        at->offset += n;
        at->credit_bytes -= n;
        at->eof_sent = chunk.eof;
        v->overrun = false;
        v->moved_ns = clock_monotonic_ns();
        return true;
}

static void send_result(struct viewer *v)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ExecResult result = WB__EXEC_RESULT__INIT;
        char detail[256];

        exec_fill_result(v->exec, &result, detail, sizeof(detail));
        m.body_case = WB__FROM_AGENT__BODY_EXEC_RESULT;
        m.exec_result = &result;
        (void)control_send(v->control, &m);
        control_finish(v->control);
        free_viewer(v);
}

/* Once all viewers of an ended exec have gone, only what has to be kept is. */
static void settle(struct exec *x)
{
        if (x->state != EXEC_ENDED || !LIST_EMPTY(&x->viewers))
                return;
        for (int i = 0; i < EXEC_STREAMS; i++)
                replay_trim(&x->output[i].replay);
}

/* Streams take turns, so that neither waits for the other. */
static void pump(struct viewer *v)
{
        struct control *c = v->control;
        bool moved = true;

        if (v->exec->state == EXEC_ENDED)
                control_hold(c); /* for the result; else a chunk leaves while the caches have it */
        while (moved && control_queued(c) < CONTROL_HIGH_BYTES) {
                moved = false;
                for (int i = 0; i < EXEC_STREAMS; i++)
                        moved |= send_chunk(v, i);
        }
        if (v->exec->state == EXEC_ENDED && v->cursor[EXEC_STDOUT].eof_sent && v->cursor[EXEC_STDERR].eof_sent)
                send_result(v);
        control_release(c);
}

void viewer_pump(struct viewer *v)
{
        struct exec *x = v->exec;

        if (x->state == EXEC_STARTING)
                return;
        pump(v);
        allow(x);
        settle(x);
}

void viewers_pump(struct exec *x)
{
        struct viewer *v, *next;

        if (x->state == EXEC_STARTING)
                return;
        for (v = LIST_FIRST(&x->viewers); v; v = next) {
                next = LIST_NEXT(v, entry);
                pump(v);
        }
        allow(x);
        settle(x);
}

void viewers_refuse(struct exec *x, const char *reason, const char *detail)
{
        struct viewer *v;

        while ((v = LIST_FIRST(&x->viewers))) {
                (void)control_send_error(v->control, reason, detail);
                control_finish(v->control);
                free_viewer(v);
        }
}

void viewers_give_input_credit(struct exec *x)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Credit credit = WB__CREDIT__INIT;
        struct input *in = &x->input;
        struct viewer *v;

        if (in->fd < 0 || in->eof || in->credit_bytes < INPUT_CREDIT_BYTES)
                return;
        credit.stream = WB__STREAM__STDIN;
        credit.bytes = in->credit_bytes;
        m.body_case = WB__FROM_AGENT__BODY_INPUT_CREDIT;
        m.input_credit = &credit;
        LIST_FOREACH (v, &x->viewers, entry)
                if (v->opener && control_send(v->control, &m) == 0)
                        in->credit_bytes = 0;
}

/* ---- what comes */

static int stream_of(Wb__Stream number)
{
        return number == WB__STREAM__STDERR ? EXEC_STDERR : EXEC_STDOUT;
}

/*
 * Its client has not gone away, the machine has, and is another: it goes on as if it had been detached, and its output
 * can be attached to. Of input there is no more; to a terminal that is nobody's concern.
 */
static void orphan(struct exec *x)
{
        x->detached = true;
        if (!x->terminal && !x->input.eof)
                (void)input_take(&x->input, x->input.offset, NULL, 0, true);
}

static void gone(struct viewer *v)
{
        struct exec *x = v->exec;
        bool owner = v->owner, reset = control_was_reset(v->control);

        free_viewer(v);
        if (owner && reset)
                orphan(x);
        else if (owner)
                exec_end_all(x, EXEC_BY_CLIENT_GONE);
        viewers_pump(x);
        settle(x);
}

static void take_input(struct viewer *v, const Wb__Chunk *chunk)
{
        struct exec *x = v->exec;
        struct control *c = v->control;

        if (!v->opener || x->state > EXEC_RUNNING)
                return;
        if (input_take(&x->input, chunk->offset, chunk->data.data, chunk->data.len, chunk->eof) == 0)
                return;
        (void)control_send_error(c, "protocol", "input beyond its window");
        control_finish(c);
        gone(v);
}

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct viewer *v = userdata;
        struct exec *x = v->exec;

        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_INPUT: take_input(v, m->input); break;
        case WB__TO_AGENT__BODY_CREDIT: {
                struct cursor *at = &v->cursor[stream_of(m->credit->stream)];

                if (__builtin_add_overflow(at->credit_bytes, m->credit->bytes, &at->credit_bytes))
                        at->credit_bytes = UINT64_MAX;
                viewer_pump(v);
                break;
        }
        case WB__TO_AGENT__BODY_SIGNAL: exec_signal(x, (int)m->signal->number); break;
        case WB__TO_AGENT__BODY_RESIZE:
                if (x->terminal && x->output[EXEC_STDOUT].state != OUTPUT_CLOSED)
                        (void)pty_resize(x->output[EXEC_STDOUT].fd, m->resize->rows, m->resize->columns);
                break;
        default: break; /* nothing that an exec knows */
        }
}

static void on_drained(void *userdata)
{
        viewer_pump(userdata);
}

static void on_closed(void *userdata)
{
        gone(userdata);
}

static const struct control_handler handler = {
        .message = on_message,
        .drained = on_drained,
        .closed = on_closed,
};

int viewer_new(struct exec *x, struct control *c, uint64_t window_bytes, struct viewer **ret)
{
        struct viewer *v = calloc(1, sizeof(*v));

        if (!v)
                return -ENOMEM;
        v->exec = x;
        v->control = c;
        v->moved_ns = clock_monotonic_ns();
        for (int i = 0; i < EXEC_STREAMS; i++)
                v->cursor[i].credit_bytes = window_bytes;
        LIST_INSERT_HEAD(&x->viewers, v, entry);
        if (!evtimer_initialized(&x->patience))
                (void)evtimer_assign(&x->patience, x->table->agent->base, on_patience, x);
        control_set_handler(c, &handler, v);
        *ret = v;
        return 0;
}
