/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/control_pool.h"
#include "guest/exec_internal.h"
#include "guest/resume.h"
#include "guest/sentinel.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

struct world {
        struct agent agent;
        struct control_pool pool;
        struct exec_table execs;
        unsigned started;
        size_t argv_n, argv_bytes, env_n;
        bool in_order;
};

static struct world *the_world;

/* In the place of the process: what would be started. */
void exec_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m, const struct texts *argv,
        const struct texts *env)
{
        struct world *w = the_world;
        char last = 0;

        CU_ASSERT_PTR_EQUAL(t, &w->execs);
        CU_ASSERT_STRING_EQUAL(m->user, "me");
        CU_ASSERT_EQUAL(m->n_argv + m->n_env, 0);
        w->started++;
        w->argv_n = argv->n;
        w->argv_bytes = argv->used;
        w->env_n = env->n;
        w->in_order = true;
        for (const char *text = texts_first(argv); text; text = texts_next(argv, text)) {
                w->in_order = w->in_order && text[0] >= last;
                last = text[0];
        }
        control_finish(c);
}

static int open_start(struct control *c, const Wb__ToAgent *m)
{
        if (m->body_case != WB__TO_AGENT__BODY_EXEC_START)
                return -EPROTO;
        exec_gather(&the_world->execs, c, m->exec_start);
        return 0;
}

static void world_start(struct world *w)
{
        *w = (struct world){.pool = {.agent = &w->agent, .open = open_start}, .execs = {.agent = &w->agent}};
        the_world = w;
        w->agent.base = event_base_new();
        w->agent.gate.state = GATE_OPEN;
        CU_ASSERT_EQUAL_FATAL(resume_watch_new(&w->agent, NULL, &w->agent.resume), 0);
        CU_ASSERT_EQUAL_FATAL(sentinel_new(&w->agent, &w->agent.sentinel), 0);
}

static void world_stop(struct world *w)
{
        while (w->pool.oldest)
                control_free(w->pool.oldest);
        CU_ASSERT_EQUAL(w->execs.gathered_bytes, 0);
        CU_ASSERT_EQUAL(w->pool.reader_bytes, 0);
        sentinel_free(w->agent.sentinel);
        resume_watch_free(w->agent.resume);
        event_base_free(w->agent.base);
}

static void turn(struct world *w)
{
        for (int i = 0; i < 8; i++)
                (void)event_base_loop(w->agent.base, EVLOOP_NONBLOCK);
}

static int dial(struct world *w)
{
        int ends[2];

        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
        CU_ASSERT_EQUAL_FATAL(control_new(&w->pool, ends[0]), 0);
        return ends[1];
}

static void say(struct world *w, int fd, const Wb__ToAgent *m)
{
        uint8_t *frame;
        size_t n, at = 0;

        CU_ASSERT_EQUAL_FATAL(codec_pack_to_agent(m, &frame, &n), 0);
        for (int i = 0; at < n && i < 10000; i++) {
                ssize_t put = send(fd, frame + at, n - at, MSG_NOSIGNAL);

                at += put > 0 ? (size_t)put : 0;
                turn(w);
        }
        free(frame);
}

/* n arguments of that letter, and one variable. */
enum { ARGUMENT_BYTES = 100000 };
static ProtobufCBinaryData variable = {3, (uint8_t *)"A=1"};

static ProtobufCBinaryData *arguments(char letter, size_t n)
{
        static uint8_t text[ARGUMENT_BYTES];
        static ProtobufCBinaryData list[10];

        memset(text, letter, sizeof(text));
        for (size_t i = 0; i < n; i++)
                list[i] = (ProtobufCBinaryData){sizeof(text), text};
        return list;
}

static void say_start(struct world *w, int fd, char letter, size_t n)
{
        Wb__ExecStart start = WB__EXEC_START__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        start.user = (char *)(uintptr_t) "me";
        start.argv = arguments(letter, n);
        start.n_argv = n;
        start.env = &variable;
        start.n_env = 1;
        start.more = true;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START;
        m.exec_start = &start;
        say(w, fd, &m);
}

static void say_more(struct world *w, int fd, char letter, size_t n, bool more)
{
        Wb__ExecStartMore rest = WB__EXEC_START_MORE__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        rest.argv = arguments(letter, n);
        rest.n_argv = n;
        rest.env = &variable;
        rest.n_env = n ? 1 : 0;
        rest.more = more;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START_MORE;
        m.exec_start_more = &rest;
        say(w, fd, &m);
}

static void hear_error(int fd, const char *reason)
{
        uint8_t bytes[4096];
        const uint8_t *p = bytes, *payload;
        struct frame_reader reader = {0};
        Wb__FromAgent *m;
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        size_t n = (size_t)got, payload_n;

        CU_ASSERT_TRUE_FATAL(got > 0);
        CU_ASSERT_EQUAL_FATAL(frame_read(&reader, &p, &n, &payload, &payload_n), 0);
        CU_ASSERT_EQUAL_FATAL(codec_unpack_from_agent(payload, payload_n, &m), 0);
        CU_ASSERT_EQUAL_FATAL(m->body_case, WB__FROM_AGENT__BODY_ERROR);
        CU_ASSERT_STRING_EQUAL(m->error->reason, reason);
        codec_free_from_agent(m);
        frame_reader_done(&reader);
}

static void test_it_starts_once_all_is_there(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say_start(&w, fd, 'a', 9);
        say_more(&w, fd, 'b', 9, true);
        CU_ASSERT_EQUAL(w.started, 0);
        CU_ASSERT_EQUAL(
                w.execs.gathered_bytes, 18 * (ARGUMENT_BYTES + WB_ARG_COST_BYTES) + 2 * (3 + WB_ARG_COST_BYTES));
        say_more(&w, fd, 'c', 2, false);
        CU_ASSERT_EQUAL(w.started, 1);
        CU_ASSERT_EQUAL(w.argv_n, 20);
        CU_ASSERT_EQUAL(w.argv_bytes, 20 * (ARGUMENT_BYTES + 1));
        CU_ASSERT_EQUAL(w.env_n, 3);
        CU_ASSERT_TRUE(w.in_order);
        CU_ASSERT_EQUAL(w.execs.gathered_bytes, 0);
        (void)close(fd);
        world_stop(&w);
}

static void test_half_a_start_leaves_nothing(void)
{
        struct world w;
        int fd;

        world_start(&w);
        for (int i = 0; i < 100; i++) {
                fd = dial(&w);
                say_start(&w, fd, 'a', 9);
                CU_ASSERT_TRUE(w.execs.gathered_bytes > 9 * ARGUMENT_BYTES);
                (void)close(fd);
                turn(&w);
                CU_ASSERT_EQUAL(w.execs.gathered_bytes, 0);
        }
        CU_ASSERT_EQUAL(w.started, 0);
        CU_ASSERT_EQUAL(w.pool.n, 0);
        world_stop(&w);
}

static void test_more_than_execve_takes(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say_start(&w, fd, 'a', 9);
        for (int i = 0; i < 6; i++)
                say_more(&w, fd, 'b', 9, true); /* 63 in all: 6.3 MB */
        say_more(&w, fd, 'b', 9, false);
        hear_error(fd, "args_too_long");
        CU_ASSERT_EQUAL(w.started, 0);
        CU_ASSERT_EQUAL(w.execs.gathered_bytes, 0);
        (void)close(fd);
        world_stop(&w);
}

static void test_too_many_at_once(void)
{
        struct world w;
        int fds[4];

        world_start(&w);
        for (int i = 0; i < 4; i++) {
                fds[i] = dial(&w);
                say_start(&w, fds[i], 'a', 9);
                for (int k = 0; k < 5; k++)
                        say_more(&w, fds[i], 'b', 9, true);
                CU_ASSERT_TRUE(w.execs.gathered_bytes <= EXEC_GATHERED_MAX_BYTES);
        }
        hear_error(fds[3], "internal");
        say_more(&w, fds[0], 'c', 1, false); /* the others go on */
        CU_ASSERT_EQUAL(w.started, 1);
        CU_ASSERT_EQUAL(w.argv_n, 55);
        for (int i = 0; i < 4; i++)
                (void)close(fds[i]);
        world_stop(&w);
}

/* Input before the rest, a start within a start, and a rest that brings nothing. */
static void test_nothing_else_may_come_in_between(void)
{
        Wb__Chunk chunk = WB__CHUNK__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        struct world w;
        int fd;

        world_start(&w);
        m.body_case = WB__TO_AGENT__BODY_INPUT;
        m.input = &chunk;
        for (int i = 0; i < 3; i++) {
                fd = dial(&w);
                say_start(&w, fd, 'a', 1);
                if (i == 0)
                        say(&w, fd, &m);
                else if (i == 1)
                        say_start(&w, fd, 'a', 1);
                else
                        say_more(&w, fd, 'a', 0, true);
                hear_error(fd, "protocol");
                CU_ASSERT_EQUAL(w.execs.gathered_bytes, 0);
                (void)close(fd);
                turn(&w);
        }
        CU_ASSERT_EQUAL(w.started, 0);
        world_stop(&w);
}

static void test_the_gate_may_close_meanwhile(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say_start(&w, fd, 'a', 1);
        w.agent.gate.state = GATE_CLOSED;
        say_more(&w, fd, 'b', 1, false);
        hear_error(fd, "not_ready");
        CU_ASSERT_EQUAL(w.started, 0);
        (void)close(fd);
        world_stop(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"it starts once all is there", test_it_starts_once_all_is_there},
                {"half a start leaves nothing", test_half_a_start_leaves_nothing},
                {"more than execve takes", test_more_than_execve_takes},
                {"too many at once", test_too_many_at_once},
                {"nothing else may come in between", test_nothing_else_may_come_in_between},
                {"the gate may close meanwhile", test_the_gate_may_close_meanwhile},
                CU_TEST_INFO_NULL,
        };

        return suite_run("exec_gather", tests);
}
