/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/client/exec_client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/client/client.h"
#include "proto/wire/limits.h"

/* Credit is given back in pieces of this size: often enough to keep the window open, seldom enough to cost nothing. */
#define CREDIT_BYTES (EXEC_CLIENT_WINDOW_BYTES / 4)

enum state {
        STATE_OPENING,
        STATE_STARTED,
        STATE_ENDED,
};

struct output {
        uint64_t owed_bytes; /* consumed, not given back yet */
        bool eof;
};

struct exec_client {
        struct client *client;
        const struct exec_client_handler *handler;
        void *userdata;
        enum state state;
        struct output output[2]; /* stdout, stderr */
        uint64_t input_offset;
        uint64_t input_room_bytes;
        bool input_eof;
};

static struct output *output_of(struct exec_client *x, Wb__Stream stream)
{
        assert(stream == WB__STREAM__STDOUT || stream == WB__STREAM__STDERR);
        return &x->output[stream == WB__STREAM__STDERR];
}

int exec_client_refusal_status(const char *reason)
{
        if (strcmp(reason, "not_found") == 0)
                return 127;
        if (strcmp(reason, "not_executable") == 0 || strcmp(reason, "args_too_long") == 0)
                return 126;
        return 125;
}

static void end(struct exec_client *x, const struct exec_outcome *outcome)
{
        if (x->state == STATE_ENDED)
                return;
        x->state = STATE_ENDED;
        x->input_room_bytes = 0;
        x->handler->ended(x->userdata, outcome);
}

static void end_lost(struct exec_client *x, int error)
{
        end(x, &(struct exec_outcome){
                       .reason = "connection_lost",
                       .detail = error ? strerror(-error) : "the agent closed the connection",
                       .exit_status = 125,
                       .error = error,
               });
}

static void end_refused(struct exec_client *x, const Wb__Error *e)
{
        end(x, &(struct exec_outcome){
                       .reason = e->reason,
                       .detail = e->detail,
                       .exit_status = exec_client_refusal_status(e->reason),
               });
}

static void end_result(struct exec_client *x, const Wb__ExecResult *result)
{
        end(x, &(struct exec_outcome){
                       .reason = result->reason,
                       .detail = result->detail,
                       .exit_status = result->exit_code & 0xff,
                       .result = result,
               });
}

static void take_started(struct exec_client *x, const Wb__ExecStarted *started)
{
        if (x->state != STATE_OPENING) {
                end_lost(x, -EBADMSG);
                return;
        }
        x->state = STATE_STARTED;
        if (!x->input_eof)
                x->input_room_bytes = started->input_window_bytes;
        if (x->handler->started)
                x->handler->started(x->userdata, started->id, started->pid);
}

static void take_output(struct exec_client *x, const Wb__Chunk *chunk)
{
        struct output *o;

        if (x->state != STATE_STARTED || (chunk->stream != WB__STREAM__STDOUT && chunk->stream != WB__STREAM__STDERR)) {
                end_lost(x, -EBADMSG);
                return;
        }
        o = output_of(x, chunk->stream);
        if (o->eof) {
                end_lost(x, -EBADMSG);
                return;
        }
        o->eof = chunk->eof;
        x->handler->output(x->userdata, chunk->stream, chunk->offset, chunk->data.data, chunk->data.len, chunk->eof);
}

static void take_input_credit(struct exec_client *x, const Wb__Credit *credit)
{
        bool was_empty = x->input_room_bytes == 0;

        if (x->state != STATE_STARTED || x->input_eof || !credit->bytes)
                return;
        if (__builtin_add_overflow(x->input_room_bytes, credit->bytes, &x->input_room_bytes))
                x->input_room_bytes = UINT64_MAX;
        if (was_empty && x->handler->input_room)
                x->handler->input_room(x->userdata);
}

static void on_message(void *userdata, const Wb__FromAgent *m)
{
        struct exec_client *x = userdata;

        switch ((int)m->body_case) {
        case WB__FROM_AGENT__BODY_ERROR: end_refused(x, m->error); break;
        case WB__FROM_AGENT__BODY_EXEC_STARTED: take_started(x, m->exec_started); break;
        case WB__FROM_AGENT__BODY_OUTPUT: take_output(x, m->output); break;
        case WB__FROM_AGENT__BODY_INPUT_CREDIT: take_input_credit(x, m->input_credit); break;
        case WB__FROM_AGENT__BODY_EXEC_RESULT: end_result(x, m->exec_result); break;
        default: end_lost(x, -EBADMSG); break;
        }
}

static void on_drained(void *userdata)
{
        struct exec_client *x = userdata;

        if (exec_client_input_room(x) && x->handler->input_room)
                x->handler->input_room(x->userdata);
}

static void on_closed(void *userdata, int error)
{
        struct exec_client *x = userdata;

        if (x->state != STATE_ENDED)
                end_lost(x, error);
        else if (x->handler->closed)
                x->handler->closed(x->userdata);
}

static const struct client_handler client_handler = {
        .message = on_message,
        .drained = on_drained,
        .closed = on_closed,
};

static int open_client(struct event_base *base, int fd, const struct exec_client_handler *handler, void *userdata,
        struct exec_client **ret)
{
        struct exec_client *x = calloc(1, sizeof(*x));
        int r;

        if (!x) {
                close_fd(fd);
                return -ENOMEM;
        }
        x->handler = handler;
        x->userdata = userdata;
        r = client_new(base, fd, &client_handler, x, &x->client);
        if (r < 0) {
                free(x);
                return r;
        }
        *ret = x;
        return 0;
}

/* r is how the first message fared. */
static int opened(struct exec_client *x, int r, struct exec_client **ret)
{
        if (r < 0) {
                exec_client_free(x);
                return r;
        }
        *ret = x;
        return 0;
}

/* What execve(2) would refuse anyway, told before a byte is sent. *left_bytes is what all texts may yet take. */
static bool fits(const ProtobufCBinaryData *texts, size_t n, size_t *left_bytes)
{
        for (size_t i = 0; i < n; i++) {
                if (texts[i].len >= WB_ARG_MAX_BYTES || texts[i].len + WB_ARG_COST_BYTES > *left_bytes)
                        return false;
                *left_bytes -= texts[i].len + WB_ARG_COST_BYTES;
        }
        return true;
}

/* ---- a start that is larger than a frame: its texts go piece by piece */

#define PIECE_BYTES (WB_FRAME_MAX_BYTES / 2)
#define PIECE_TEXTS (WB_ARGS_MAX / 4) /* what unpacking one of them costs the agent is bounded too */

/* What is still to be sent. */
struct rest {
        ProtobufCBinaryData *texts;
        size_t n;
};

/* The next texts, as far as a piece has room for them. */
static struct rest take_piece(struct rest *rest, size_t *room_bytes, size_t *room_texts)
{
        struct rest piece = {.texts = rest->texts};

        while (piece.n < rest->n && *room_texts && rest->texts[piece.n].len + WB_ARG_COST_BYTES <= *room_bytes) {
                *room_bytes -= rest->texts[piece.n++].len + WB_ARG_COST_BYTES;
                (*room_texts)--;
        }
        rest->texts += piece.n;
        rest->n -= piece.n;
        return piece;
}

static int send_more(struct exec_client *x, struct rest *argv, struct rest *env)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecStartMore more = WB__EXEC_START_MORE__INIT;
        size_t room_bytes = PIECE_BYTES, room_texts = PIECE_TEXTS;
        struct rest a = take_piece(argv, &room_bytes, &room_texts), e = take_piece(env, &room_bytes, &room_texts);

        more.argv = a.texts;
        more.n_argv = a.n;
        more.env = e.texts;
        more.n_env = e.n;
        more.more = argv->n || env->n;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START_MORE;
        m.exec_start_more = &more;
        return client_send(x->client, &m);
}

/* All of it is queued at once, so that what is said next comes behind it. */
static int send_start(struct exec_client *x, const Wb__ExecStart *start)
{
        struct rest argv = {start->argv, start->n_argv}, env = {start->env, start->n_env};
        size_t room_bytes = PIECE_BYTES, room_texts = PIECE_TEXTS;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecStart first = *start;
        int r;

        first.n_argv = take_piece(&argv, &room_bytes, &room_texts).n;
        first.n_env = take_piece(&env, &room_bytes, &room_texts).n;
        first.more = argv.n || env.n;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START;
        m.exec_start = &first;
        r = client_send(x->client, &m);
        while (r == 0 && (argv.n || env.n))
                r = send_more(x, &argv, &env);
        return r;
}

int exec_client_start(struct event_base *base, int fd, Wb__ExecStart *start, const struct exec_client_handler *handler,
        void *userdata, struct exec_client **ret)
{
        size_t left_bytes = WB_START_MAX_BYTES;
        struct exec_client *x;
        int r;

        if (!fits(start->argv, start->n_argv, &left_bytes) || !fits(start->env, start->n_env, &left_bytes)) {
                close_fd(fd);
                return EXEC_CLIENT_E_TOO_LONG;
        }
        start->output_window_bytes = EXEC_CLIENT_WINDOW_BYTES;
        r = open_client(base, fd, handler, userdata, &x);
        return r < 0 ? r : opened(x, send_start(x, start), ret);
}

int exec_client_attach(struct event_base *base, int fd, Wb__ExecAttach *attach,
        const struct exec_client_handler *handler, void *userdata, struct exec_client **ret)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        struct exec_client *x;
        int r;

        attach->output_window_bytes = EXEC_CLIENT_WINDOW_BYTES;
        m.body_case = WB__TO_AGENT__BODY_EXEC_ATTACH;
        m.exec_attach = attach;
        r = open_client(base, fd, handler, userdata, &x);
        return r < 0 ? r : opened(x, client_send(x->client, &m), ret);
}

void exec_client_free(struct exec_client *x)
{
        if (!x)
                return;
        client_free(x->client);
        free(x);
}

void exec_client_consumed(struct exec_client *x, Wb__Stream stream, size_t n)
{
        struct output *o = output_of(x, stream);
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__Credit credit = WB__CREDIT__INIT;

        o->owed_bytes += n;
        if (o->owed_bytes < CREDIT_BYTES || o->eof || x->state != STATE_STARTED)
                return;
        credit.stream = stream;
        credit.bytes = o->owed_bytes;
        m.body_case = WB__TO_AGENT__BODY_CREDIT;
        m.credit = &credit;
        if (client_send(x->client, &m) == 0) /* else it stays owed, or the connection is over */
                o->owed_bytes = 0;
}

size_t exec_client_input_room(const struct exec_client *x)
{
        size_t queued = client_queued(x->client);

        if (x->state != STATE_STARTED || x->input_eof || queued >= CLIENT_LOW_BYTES)
                return 0;
        return x->input_room_bytes < WB_CHUNK_MAX_BYTES ? (size_t)x->input_room_bytes : WB_CHUNK_MAX_BYTES;
}

static int send_input(struct exec_client *x, const uint8_t *data, size_t n, bool eof)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__Chunk chunk = WB__CHUNK__INIT;
        int r;

        if (x->state == STATE_ENDED)
                return -EPIPE;
        chunk.stream = WB__STREAM__STDIN;
        chunk.offset = x->input_offset;
        chunk.data.data = (uint8_t *)(uintptr_t)data;
        chunk.data.len = n;
        chunk.eof = eof;
        m.body_case = WB__TO_AGENT__BODY_INPUT;
        m.input = &chunk;
        r = client_send(x->client, &m);
        if (r < 0)
                return r;
        x->input_offset += n;
        x->input_room_bytes -= n;
        return 0;
}

int exec_client_input(struct exec_client *x, const uint8_t *data, size_t n)
{
        assert(n <= exec_client_input_room(x));
        return send_input(x, data, n, false);
}

int exec_client_input_eof(struct exec_client *x)
{
        int r;

        if (x->input_eof)
                return 0;
        r = send_input(x, NULL, 0, true);
        if (r == 0)
                x->input_eof = true;
        return r;
}

int exec_client_signal(struct exec_client *x, unsigned number)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__Signal s = WB__SIGNAL__INIT;

        s.number = number;
        m.body_case = WB__TO_AGENT__BODY_SIGNAL;
        m.signal = &s;
        return client_send(x->client, &m);
}

int exec_client_resize(struct exec_client *x, unsigned rows, unsigned columns)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__TerminalSize size = WB__TERMINAL_SIZE__INIT;

        size.rows = rows;
        size.columns = columns;
        m.body_case = WB__TO_AGENT__BODY_RESIZE;
        m.resize = &size;
        return client_send(x->client, &m);
}
