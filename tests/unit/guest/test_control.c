/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/control.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/activation.h"
#include "guest/agent.h"
#include "guest/control_pool.h"
#include "guest/control_server.h"
#include "guest/exec.h"
#include "guest/opening.h"
#include "guest/resume.h"
#include "guest/sentinel.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "tests/support/suite.h"

/* The execs' place is taken by this: what a conversation does with its handler is seen here. */
struct exec_table {
        struct control *control;
        unsigned messages, drained, closed;
        bool finish_on_message;
        bool goes_on; /* the opening needs a second message */
};

static const struct control_handler handler;

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct exec_table *t = userdata;

        (void)m;
        t->messages++;
        if (t->finish_on_message)
                control_finish(t->control);
        if (t->goes_on)
                control_set_handler(t->control, &handler, t);
        t->goes_on = false;
}

static void on_drained(void *userdata)
{
        ((struct exec_table *)userdata)->drained++;
}

static void on_closed(void *userdata)
{
        ((struct exec_table *)userdata)->closed++;
}

static const struct control_handler handler = {on_message, on_drained, on_closed};

void exec_open_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m)
{
        (void)m;
        t->control = c;
        if (t->goes_on)
                control_set_opening_handler(c, &handler, t);
        else
                control_set_handler(c, &handler, t);
}

void exec_open_attach(struct exec_table *t, struct control *c, const Wb__ExecAttach *m)
{
        (void)t;
        (void)c;
        (void)m;
}

void exec_open_limit(struct exec_table *t, struct control *c, const Wb__ExecLimit *m)
{
        (void)t;
        (void)c;
        (void)m;
}

void exec_open_kill(struct exec_table *t, struct control *c, const Wb__ExecKill *m)
{
        (void)t;
        (void)c;
        (void)m;
}

void exec_open_list(struct exec_table *t, struct control *c)
{
        (void)t;
        (void)c;
}

int exec_table_freeze(struct exec_table *t)
{
        (void)t;
        return 0;
}

int exec_table_thaw(struct exec_table *t)
{
        (void)t;
        return 0;
}

void exec_table_forget_secret(struct exec_table *t, const char *name)
{
        (void)t;
        (void)name;
}

unsigned exec_table_running(const struct exec_table *t)
{
        (void)t;
        return 0;
}

size_t exec_table_statistics(const struct exec_table *t, struct exec_statistics *ret, size_t room)
{
        (void)t;
        (void)ret;
        (void)room;
        return 0;
}

int exec_table_ceiling(struct exec_table *t, uint64_t bytes)
{
        (void)t;
        (void)bytes;
        return 0;
}

int exec_table_new(struct agent *agent, struct exec_table **ret)
{
        (void)agent;
        (void)ret;
        return -ENOSYS;
}

void exec_table_free(struct exec_table *t)
{
        (void)t;
}

bool exec_table_reaped(struct exec_table *t, pid_t pid, int wait_status, const struct rusage *usage)
{
        (void)t;
        (void)pid;
        (void)wait_status;
        (void)usage;
        return false;
}

/* ---- a served agent, and its clients */

struct world {
        struct agent agent;
        struct exec_table execs;
        struct activation_record last;
        struct sockaddr_un address;
};

static void world_start(struct world *w)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        socklen_t n = sizeof(w->address);

        *w = (struct world){0};
        w->agent.base = event_base_new();
        w->agent.execs = &w->execs;
        w->agent.last = &w->last;
        w->agent.transport.kind = TRANSPORT_UNIX;
        CU_ASSERT_EQUAL_FATAL(resume_watch_new(&w->agent, NULL, &w->agent.resume), 0);
        CU_ASSERT_EQUAL_FATAL(sentinel_new(&w->agent, &w->agent.sentinel), 0);
        w->address.sun_family = AF_UNIX; /* the kernel picks an abstract name */
        CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&w->address, sizeof(sa_family_t)), 0);
        CU_ASSERT_EQUAL_FATAL(listen(fd, 512), 0);
        CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&w->address, &n), 0);
        CU_ASSERT_EQUAL_FATAL(control_server_new(&w->agent, fd, opening_take, &w->agent.controls), 0);
}

static void world_stop(struct world *w)
{
        control_server_free(w->agent.controls);
        sentinel_free(w->agent.sentinel);
        resume_watch_free(w->agent.resume);
        event_base_free(w->agent.base);
}

static void turn(struct world *w)
{
        for (int i = 0; i < 20; i++)
                (void)event_base_loop(w->agent.base, EVLOOP_NONBLOCK);
}

static int dial(struct world *w)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6); /* Linux: a NUL and five hex digits */

        CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&w->address, n), 0);
        turn(w);
        return fd;
}

static void say(struct world *w, int fd, const Wb__ToAgent *m)
{
        uint8_t *frame;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(codec_pack_to_agent(m, &frame, &n), 0);
        CU_ASSERT_EQUAL(send(fd, frame, n, MSG_NOSIGNAL), (ssize_t)n);
        free(frame);
        turn(w);
}

static void say_start(struct world *w, int fd)
{
        Wb__ExecStart start = WB__EXEC_START__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        ProtobufCBinaryData argv = {4, (uint8_t *)"true"};

        start.n_argv = 1;
        start.argv = &argv;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START;
        m.exec_start = &start;
        say(w, fd, &m);
}

static void say_credit(struct world *w, int fd)
{
        Wb__Credit credit = WB__CREDIT__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        credit.stream = WB__STREAM__STDOUT;
        credit.bytes = 1;
        m.body_case = WB__TO_AGENT__BODY_CREDIT;
        m.credit = &credit;
        say(w, fd, &m);
}

/* The one message that is there now; NULL if there is none. */
static Wb__FromAgent *hear(int fd)
{
        uint8_t bytes[4096];
        const uint8_t *p = bytes, *payload;
        struct frame_reader reader = {0};
        Wb__FromAgent *m = NULL;
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        size_t n, payload_n;

        if (got <= 0)
                return NULL;
        n = (size_t)got;
        if (frame_read(&reader, &p, &n, &payload, &payload_n) == 0)
                (void)codec_unpack_from_agent(payload, payload_n, &m);
        frame_reader_done(&reader);
        return m;
}

static void hear_error(int fd, const char *reason)
{
        Wb__FromAgent *m = hear(fd);

        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL_FATAL(m->body_case, WB__FROM_AGENT__BODY_ERROR);
        CU_ASSERT_STRING_EQUAL(m->error->reason, reason);
        codec_free_from_agent(m);
}

static bool is_closed(int fd)
{
        uint8_t byte;

        return recv(fd, &byte, 1, 0) == 0;
}

/* ---- tests */

static void test_no_command_before_an_activation(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say_start(&w, fd);
        hear_error(fd, "not_ready"); /* the gate */
        CU_ASSERT_TRUE(is_closed(fd));
        CU_ASSERT_EQUAL(w.execs.messages + w.execs.closed, 0);
        (void)close(fd);
        world_stop(&w);
}

static void test_garbage_is_answered_and_closed(void)
{
        static const uint8_t garbage[] = {0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}, large[] = {0, 0x10, 0, 1},
                             empty[] = {0, 0, 0, 0};
        const struct {
                const uint8_t *bytes;
                size_t n;
        } cases[] = {{garbage, sizeof(garbage)}, {large, sizeof(large)}, {empty, sizeof(empty)}};
        struct world w;

        world_start(&w);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                int fd = dial(&w);

                CU_ASSERT_EQUAL(send(fd, cases[i].bytes, cases[i].n, 0), (ssize_t)cases[i].n);
                turn(&w);
                hear_error(fd, "protocol");
                CU_ASSERT_TRUE(is_closed(fd));
                (void)close(fd);
                turn(&w);
        }
        world_stop(&w);
}

static void test_a_message_that_opens_nothing(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say_credit(&w, fd);
        hear_error(fd, "protocol");
        CU_ASSERT_TRUE(is_closed(fd));
        (void)close(fd);
        world_stop(&w);
}

static int open_exec(struct world *w)
{
        int fd = dial(w);

        w->agent.gate.state = GATE_OPEN;
        say_start(w, fd);
        CU_ASSERT_PTR_NOT_NULL_FATAL(w->execs.control);
        return fd;
}

static void test_handler_hears_all_and_the_end_once(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = open_exec(&w);
        say_credit(&w, fd);
        say_credit(&w, fd);
        CU_ASSERT_EQUAL(w.execs.messages, 2);
        CU_ASSERT_EQUAL(w.execs.closed, 0);
        (void)close(fd);
        turn(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
        world_stop(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
}

static void test_breaking_the_rules_closes_the_handler_once(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = open_exec(&w);
        CU_ASSERT_EQUAL(send(fd, "\xff\xff\xff\xff", 4, 0), 4);
        turn(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
        (void)close(fd);
        turn(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
        world_stop(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
}

/* An opening of two messages: the handler has the second, and hears of the end also in between. */
static void test_an_opening_goes_on(void)
{
        struct world w;
        int fd;

        for (int finished = 0; finished < 2; finished++) {
                world_start(&w);
                w.execs.goes_on = true;
                fd = open_exec(&w);
                CU_ASSERT_TRUE(control_is_silent(w.execs.control));
                if (finished) {
                        say_credit(&w, fd);
                        CU_ASSERT_FALSE(control_is_silent(w.execs.control));
                }
                CU_ASSERT_EQUAL(w.execs.messages, (unsigned)finished);
                (void)close(fd);
                turn(&w);
                CU_ASSERT_EQUAL(w.execs.closed, 1);
                world_stop(&w);
                CU_ASSERT_EQUAL(w.execs.closed, 1);
        }
}

/* Finishing from within the handler, with more frames behind in the same read, hears no more and closes nothing twice.
 */
static void test_finish_from_within(void)
{
        struct world w;
        int fd;

        world_start(&w);
        fd = open_exec(&w);
        w.execs.finish_on_message = true;
        CU_ASSERT_EQUAL(
                send(fd, "\0\0\0\x07\x8a\x01\x04\x08\x01\x10\x01\0\0\0\x07\x8a\x01\x04\x08\x01\x10\x01", 22, 0), 22);
        turn(&w);
        CU_ASSERT_EQUAL(w.execs.messages, 1);
        CU_ASSERT_EQUAL(w.execs.closed, 0);
        CU_ASSERT_TRUE(is_closed(fd));
        (void)close(fd);
        world_stop(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 0);
}

/* A peer that does not read: the queue is told, bounded, drained when it reads, and nothing of it is lost. */
static void test_a_stalled_reader(void)
{
        static uint8_t data[WB_CHUNK_MAX_BYTES];
        static uint8_t sink[65536];
        Wb__Chunk chunk = WB__CHUNK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        struct world w;
        size_t sent = 0, heard = 0;
        int fd, r;

        world_start(&w);
        fd = open_exec(&w);
        chunk.stream = WB__STREAM__STDOUT;
        chunk.data = (ProtobufCBinaryData){sizeof(data), data};
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        while ((r = control_send(w.execs.control, &m)) == 0 && sent < 1000)
                sent++;
        CU_ASSERT_EQUAL(r, -ENOBUFS);
        CU_ASSERT_TRUE(control_queued(w.execs.control) >= CONTROL_MOST_BYTES);
        CU_ASSERT_EQUAL(w.execs.drained, 0);
        control_finish(w.execs.control);
        for (int i = 0; i < 2000; i++) {
                ssize_t got = recv(fd, sink, sizeof(sink), 0);

                if (got == 0)
                        break;
                if (got > 0)
                        heard += (size_t)got;
                turn(&w);
        }
        CU_ASSERT_TRUE(heard >= sent * sizeof(data)); /* and their heads */
        CU_ASSERT_TRUE(is_closed(fd));
        (void)close(fd);
        world_stop(&w);
}

static void test_drained_is_called(void)
{
        static uint8_t data[WB_CHUNK_MAX_BYTES];
        static uint8_t sink[65536];
        Wb__Chunk chunk = WB__CHUNK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        struct world w;
        int fd;

        world_start(&w);
        fd = open_exec(&w);
        chunk.stream = WB__STREAM__STDOUT;
        chunk.data = (ProtobufCBinaryData){sizeof(data), data};
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        while (control_queued(w.execs.control) < CONTROL_HIGH_BYTES)
                CU_ASSERT_EQUAL_FATAL(control_send(w.execs.control, &m), 0);
        for (int i = 0; i < 100 && !w.execs.drained; i++) {
                (void)!recv(fd, sink, sizeof(sink), 0);
                turn(&w);
        }
        CU_ASSERT_EQUAL(w.execs.drained, 1);
        CU_ASSERT_TRUE(control_queued(w.execs.control) < CONTROL_LOW_BYTES);
        (void)close(fd);
        world_stop(&w);
}

/* Silent connections cannot lock out one that has something to say. */
static void test_silent_ones_give_way(void)
{
        struct world w;
        int fds[CONTROL_MAX + 20], exec_fd;

        world_start(&w);
        exec_fd = open_exec(&w);
        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                fds[i] = dial(&w);
        CU_ASSERT_TRUE(is_closed(fds[0]));
        CU_ASSERT_FALSE(is_closed(fds[CONTROL_MAX + 19]));
        say_credit(&w, exec_fd);
        CU_ASSERT_EQUAL(w.execs.messages, 1);
        CU_ASSERT_EQUAL(w.execs.closed, 0);
        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
                (void)close(fds[i]);
        (void)close(exec_fd);
        world_stop(&w);
        CU_ASSERT_EQUAL(w.execs.closed, 1);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"no command before an activation", test_no_command_before_an_activation},
                {"garbage is answered and closed", test_garbage_is_answered_and_closed},
                {"a message that opens nothing", test_a_message_that_opens_nothing},
                {"the handler hears all, and the end once", test_handler_hears_all_and_the_end_once},
                {"breaking the rules closes the handler once", test_breaking_the_rules_closes_the_handler_once},
                {"an opening goes on", test_an_opening_goes_on},
                {"finish from within", test_finish_from_within},
                {"a stalled reader", test_a_stalled_reader},
                {"drained is called", test_drained_is_called},
                {"silent ones give way", test_silent_ones_give_way},
                CU_TEST_INFO_NULL,
        };

        return suite_run("control", tests);
}
