/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A start whose argv and environment come in several messages. Nothing is started, and nothing but memory is held,
 * until the last of them is there; the conversation stays in its opening meanwhile, which bounds the time. What is held
 * is charged first: of one start no more than execve(2) would take, of all no more than EXEC_GATHERED_MAX_BYTES.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest/exec_start.h"
#include "guest/gate.h"
#include "guest/resume.h"
#include "guest/sentinel.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

struct gather {
        struct exec_table *table;
        struct control *control;
        Wb__ExecStart *start; /* the first message, but for its texts */
        struct texts argv, env;
        size_t charged; /* of table->gathered_bytes */
};

static void gather_free(struct gather *g)
{
        g->table->gathered_bytes -= g->charged;
        texts_done(&g->argv);
        texts_done(&g->env);
        if (g->start)
                wb__exec_start__free_unpacked(g->start, NULL);
        free(g);
}

/* Frees g. */
static void refuse(struct gather *g, const char *reason, const char *detail)
{
        (void)control_send_error(g->control, reason, detail);
        control_finish(g->control);
        gather_free(g);
}

/* Without the texts, which may be as large as a frame. */
static Wb__ExecStart *copy_of(const Wb__ExecStart *m)
{
        Wb__ExecStart rest = *m, *copy;
        uint8_t *packed;
        size_t n;

        rest.n_argv = rest.n_env = 0;
        packed = malloc(wb__exec_start__get_packed_size(&rest) + 1);
        if (!packed)
                return NULL;
        n = wb__exec_start__pack(&rest, packed);
        copy = wb__exec_start__unpack(NULL, n, packed);
        free(packed);
        return copy;
}

static int charge(struct gather *g, size_t bytes)
{
        if (bytes > WB_START_MAX_BYTES - g->charged)
                return -E2BIG;
        if (bytes > EXEC_GATHERED_MAX_BYTES - g->table->gathered_bytes)
                return -ENOBUFS;
        g->charged += bytes;
        g->table->gathered_bytes += bytes;
        return 0;
}

static int add(
        struct gather *g, const ProtobufCBinaryData *argv, size_t argv_n, const ProtobufCBinaryData *env, size_t env_n)
{
        int r = charge(g, texts_cost(argv, argv_n) + texts_cost(env, env_n));

        if (r == 0)
                r = texts_add(&g->argv, argv, argv_n);
        return r < 0 ? r : texts_add(&g->env, env, env_n);
}

/* Frees g. */
static void refuse_errno(struct gather *g, int r)
{
        if (r == -E2BIG)
                refuse(g, "args_too_long", "arguments and environment are larger than an exec may be");
        else
                refuse(g, "internal", r == -ENOBUFS ? "too many large commands are being started" : strerror(-r));
}

/* The guest may have been closed, or cloned, since the first message was let in. */
static void complete(struct gather *g)
{
        struct exec_table *t = g->table;
        struct control *c = g->control;
        Wb__ExecStart *start;

        sentinel_look(t->agent->sentinel);
        resume_look(t->agent->resume);
        if (!gate_is_open(&t->agent->gate)) {
                refuse(g, "not_ready", "the guest is not activated");
                return;
        }
        start = STEAL(g->start);
        exec_start(t, c, start, &g->argv, &g->env);
        wb__exec_start__free_unpacked(start, NULL);
        gather_free(g);
}

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        const Wb__ExecStartMore *more = m->exec_start_more;
        struct gather *g = userdata;
        int r;

        if (m->body_case != WB__TO_AGENT__BODY_EXEC_START_MORE || !(more->n_argv || more->n_env)) {
                refuse(g, "protocol", "this is not the rest of the start");
                return;
        }
        r = add(g, more->argv, more->n_argv, more->env, more->n_env);
        if (r < 0)
                refuse_errno(g, r);
        else if (!more->more)
                complete(g);
}

static void on_closed(void *userdata)
{
        gather_free(userdata);
}

static const struct control_handler handler = {.message = on_message, .closed = on_closed};

void exec_gather(struct exec_table *t, struct control *c, const Wb__ExecStart *m)
{
        struct gather *g = calloc(1, sizeof(*g));
        int r = -ENOMEM;

        if (!g) {
                (void)control_send_error(c, "internal", "no memory");
                control_finish(c);
                return;
        }
        g->table = t;
        g->control = c;
        g->start = copy_of(m);
        if (g->start)
                r = add(g, m->argv, m->n_argv, m->env, m->n_env);
        if (r < 0)
                refuse_errno(g, r);
        else
                control_set_opening_handler(c, &handler, g);
}
