/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/client/client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/client/exec_client.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

/* The agent's end of a socketpair, played by the test. */
struct peer {
        struct event_base *base;
        int fd;
        struct frame_reader reader;
};

static int peer_open(struct peer *p)
{
        int fds[2];

        *p = (struct peer){.base = event_base_new()};
        CU_ASSERT_FATAL(p->base && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        p->fd = fds[1];
        return fds[0];
}

static void peer_close(struct peer *p)
{
        frame_reader_done(&p->reader);
        close(p->fd);
        event_base_free(p->base);
}

static void peer_say(struct peer *p, const Wb__FromAgent *m)
{
        uint8_t *frame;
        size_t n;

        CU_ASSERT_FATAL(codec_pack_from_agent(m, &frame, &n) == 0);
        CU_ASSERT(io_write_full(p->fd, frame, n) == 0);
        free(frame);
}

static void peer_say_output(struct peer *p, Wb__Stream stream, uint64_t offset, const char *text, bool eof)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Chunk chunk = WB__CHUNK__INIT;

        chunk.stream = stream;
        chunk.offset = offset;
        chunk.data.data = (uint8_t *)(uintptr_t)text;
        chunk.data.len = strlen(text);
        chunk.eof = eof;
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        peer_say(p, &m);
}

static void peer_say_started(struct peer *p, uint64_t input_window_bytes)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ExecStarted started = WB__EXEC_STARTED__INIT;

        started.id = (char *)(uintptr_t) "x1";
        started.pid = 7;
        started.input_window_bytes = input_window_bytes;
        m.body_case = WB__FROM_AGENT__BODY_EXEC_STARTED;
        m.exec_started = &started;
        peer_say(p, &m);
}

static void peer_say_error(struct peer *p, const char *reason)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Error error = WB__ERROR__INIT;

        error.reason = (char *)(uintptr_t)reason;
        error.detail = (char *)(uintptr_t) "thing";
        m.body_case = WB__FROM_AGENT__BODY_ERROR;
        m.error = &error;
        peer_say(p, &m);
}

/* The next frame that the client sent. */
static Wb__ToAgent *peer_hear(struct peer *p)
{
        for (;;) {
                uint8_t byte;
                const uint8_t *at = &byte, *payload;
                size_t n = 1, payload_n;
                Wb__ToAgent *m;

                event_base_loop(p->base, EVLOOP_NONBLOCK);
                if (io_read_full(p->fd, &byte, 1) < 0)
                        return NULL;
                if (frame_read(&p->reader, &at, &n, &payload, &payload_n) == 0)
                        return codec_unpack_to_agent(payload, payload_n, &m) == 0 ? m : NULL;
        }
}

static void hear_signal(struct peer *p, unsigned number)
{
        Wb__ToAgent *m = peer_hear(p);

        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        CU_ASSERT_EQUAL_FATAL(m->body_case, WB__TO_AGENT__BODY_SIGNAL);
        CU_ASSERT_EQUAL(m->signal->number, number);
        codec_free_to_agent(m);
}

struct seen {
        struct exec_client *x;
        char id[8];
        char text[2][64];
        size_t bytes;
        uint64_t offset;
        unsigned eofs, ends, rooms;
        char reason[32];
        int status;
        bool free_in_output;
};

static void see_started(void *userdata, const char *id, pid_t pid)
{
        struct seen *s = userdata;

        CU_ASSERT_EQUAL(pid, 7);
        (void)snprintf(s->id, sizeof(s->id), "%s", id);
}

static void see_output(void *userdata, Wb__Stream stream, uint64_t offset, const uint8_t *data, size_t n, bool eof)
{
        struct seen *s = userdata;
        char *text = s->text[stream == WB__STREAM__STDERR];

        if (n && n < 60 - strlen(text))
                strncat(text, (const char *)data, n);
        s->bytes += n;
        s->offset = offset;
        s->eofs += eof;
        if (s->free_in_output) {
                exec_client_free(s->x);
                s->x = NULL;
        }
}

static void see_room(void *userdata)
{
        ((struct seen *)userdata)->rooms++;
}

static void see_ended(void *userdata, const struct exec_outcome *outcome)
{
        struct seen *s = userdata;

        s->ends++;
        s->status = outcome->exit_status;
        (void)snprintf(s->reason, sizeof(s->reason), "%s", outcome->reason);
}

static const struct exec_client_handler seeing = {
        .started = see_started, .output = see_output, .input_room = see_room, .ended = see_ended};

static void open_exec(struct peer *p, struct seen *s)
{
        Wb__ExecStart start = WB__EXEC_START__INIT;
        ProtobufCBinaryData argv = {.len = 4, .data = (uint8_t *)(uintptr_t) "true"};
        int fd = peer_open(p);
        Wb__ToAgent *m;

        *s = (struct seen){0};
        start.argv = &argv;
        start.n_argv = 1;
        CU_ASSERT_EQUAL_FATAL(exec_client_start(p->base, fd, &start, &seeing, s, &s->x), 0);
        m = peer_hear(p);
        CU_ASSERT_FATAL(m && m->body_case == WB__TO_AGENT__BODY_EXEC_START);
        CU_ASSERT_EQUAL(m->exec_start->output_window_bytes, EXEC_CLIENT_WINDOW_BYTES);
        codec_free_to_agent(m);
}

static void turn(struct peer *p)
{
        for (int i = 0; i < 4; i++)
                event_base_loop(p->base, EVLOOP_NONBLOCK);
}

static void test_streams_and_result(void)
{
        struct peer p;
        struct seen s;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ExecResult result = WB__EXEC_RESULT__INIT;

        open_exec(&p, &s);
        peer_say_started(&p, 100);
        peer_say_output(&p, WB__STREAM__STDOUT, 0, "ab", false);
        peer_say_output(&p, WB__STREAM__STDERR, 0, "x", true);
        peer_say_output(&p, WB__STREAM__STDOUT, 2, "c", true);
        result.id = (char *)(uintptr_t) "x1";
        result.reason = (char *)(uintptr_t) "exited";
        result.exit_code = 7;
        m.body_case = WB__FROM_AGENT__BODY_EXEC_RESULT;
        m.exec_result = &result;
        peer_say(&p, &m);
        turn(&p);
        CU_ASSERT_STRING_EQUAL(s.id, "x1");
        CU_ASSERT_STRING_EQUAL(s.text[0], "abc");
        CU_ASSERT_STRING_EQUAL(s.text[1], "x");
        CU_ASSERT_EQUAL(s.eofs, 2);
        CU_ASSERT_EQUAL(s.ends, 1);
        CU_ASSERT_EQUAL(s.status, 7);
        CU_ASSERT_STRING_EQUAL(s.reason, "exited");
        exec_client_free(s.x);
        peer_close(&p);
}

static void test_input_keeps_to_the_window(void)
{
        struct peer p;
        struct seen s;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Credit credit = WB__CREDIT__INIT;
        Wb__ToAgent *heard;

        open_exec(&p, &s);
        CU_ASSERT_EQUAL(exec_client_input_room(s.x), 0);
        peer_say_started(&p, 5);
        turn(&p);
        CU_ASSERT_EQUAL(exec_client_input_room(s.x), 5);
        CU_ASSERT_EQUAL(exec_client_input(s.x, (const uint8_t *)"hello", 5), 0);
        CU_ASSERT_EQUAL(exec_client_input_room(s.x), 0);
        heard = peer_hear(&p);
        CU_ASSERT_FATAL(heard && heard->body_case == WB__TO_AGENT__BODY_INPUT && heard->input->data.len == 5);
        codec_free_to_agent(heard);
        credit.bytes = 3;
        m.body_case = WB__FROM_AGENT__BODY_INPUT_CREDIT;
        m.input_credit = &credit;
        peer_say(&p, &m);
        turn(&p);
        CU_ASSERT(s.rooms > 0);
        CU_ASSERT_EQUAL(exec_client_input_room(s.x), 3);
        CU_ASSERT_EQUAL(exec_client_input_eof(s.x), 0);
        CU_ASSERT_EQUAL(exec_client_input_room(s.x), 0);
        heard = peer_hear(&p);
        CU_ASSERT_FATAL(heard && heard->input->eof && heard->input->offset == 5);
        codec_free_to_agent(heard);
        exec_client_free(s.x);
        peer_close(&p);
}

static void test_credit_is_given_back_in_pieces(void)
{
        struct peer p;
        struct seen s;
        Wb__ToAgent *heard;

        open_exec(&p, &s);
        peer_say_started(&p, 0);
        turn(&p);
        exec_client_consumed(s.x, WB__STREAM__STDOUT, EXEC_CLIENT_WINDOW_BYTES / 4 - 1);
        exec_client_consumed(s.x, WB__STREAM__STDERR, 1);
        exec_client_consumed(s.x, WB__STREAM__STDOUT, 1);
        heard = peer_hear(&p);
        CU_ASSERT_FATAL(heard && heard->body_case == WB__TO_AGENT__BODY_CREDIT);
        CU_ASSERT_EQUAL(heard->credit->stream, WB__STREAM__STDOUT);
        CU_ASSERT_EQUAL(heard->credit->bytes, EXEC_CLIENT_WINDOW_BYTES / 4);
        codec_free_to_agent(heard);
        exec_client_free(s.x);
        peer_close(&p);
}

static void test_a_refusal_has_its_status(void)
{
        static const struct {
                const char *reason;
                int status;
        } cases[] = {{"not_found", 127}, {"not_executable", 126}, {"args_too_long", 126}, {"bad_cwd", 125},
                {"not_ready", 125}, {"word of a later version", 125}};

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct peer p;
                struct seen s;

                open_exec(&p, &s);
                peer_say_error(&p, cases[i].reason);
                turn(&p);
                CU_ASSERT_EQUAL(s.ends, 1);
                CU_ASSERT_EQUAL(s.status, cases[i].status);
                CU_ASSERT_STRING_EQUAL(s.reason, cases[i].reason);
                exec_client_free(s.x);
                peer_close(&p);
        }
}

/* Each of these is what a hostile guest could send; the conversation ends, once, and nothing else happens. */
static void test_a_peer_that_breaks_the_rules_is_left(void)
{
        for (int i = 0; i < 5; i++) {
                struct peer p;
                struct seen s;

                open_exec(&p, &s);
                switch (i) {
                case 0: CU_ASSERT(io_write_full(p.fd, "\x7f\xff\xff\xff", 4) == 0); break;
                case 1: CU_ASSERT(io_write_full(p.fd, "\0\0\0\2\xff\xff", 6) == 0); break;
                case 2: peer_say_output(&p, WB__STREAM__STDOUT, 0, "early", false); break;
                case 3:
                        peer_say_started(&p, 0);
                        peer_say_output(&p, WB__STREAM__STDIN, 0, "wrong", false);
                        break;
                default:
                        peer_say_started(&p, 0);
                        peer_say_output(&p, WB__STREAM__STDOUT, 0, "", true);
                        peer_say_output(&p, WB__STREAM__STDOUT, 0, "after", true);
                        break;
                }
                peer_say_error(&p, "later");
                turn(&p);
                CU_ASSERT_EQUAL(s.ends, 1);
                CU_ASSERT_STRING_EQUAL(s.reason, "connection_lost");
                CU_ASSERT_EQUAL(s.status, 125);
                exec_client_free(s.x);
                peer_close(&p);
        }
}

static void test_a_handler_may_free_it(void)
{
        struct peer p;
        struct seen s;

        open_exec(&p, &s);
        s.free_in_output = true;
        peer_say_started(&p, 0);
        peer_say_output(&p, WB__STREAM__STDOUT, 0, "a", false);
        peer_say_output(&p, WB__STREAM__STDOUT, 1, "b", false);
        turn(&p);
        CU_ASSERT_STRING_EQUAL(s.text[0], "a");
        CU_ASSERT_EQUAL(s.ends, 0);
        peer_close(&p);
}

static void test_what_does_not_fit_is_not_sent(void)
{
        struct peer p;
        struct seen s = {0};
        Wb__ExecStart start = WB__EXEC_START__INIT;
        static uint8_t text[WB_ARG_MAX_BYTES];
        ProtobufCBinaryData argv[WB_START_MAX_BYTES / WB_ARG_MAX_BYTES + 1];
        const size_t most = sizeof(argv) / sizeof(argv[0]);
        int fd;

        memset(text, 'a', sizeof(text));
        start.argv = argv;
        start.n_argv = 1;
        argv[0] = (ProtobufCBinaryData){.len = sizeof(text), .data = text};
        fd = peer_open(&p);
        CU_ASSERT_EQUAL(exec_client_start(p.base, fd, &start, &seeing, &s, &s.x), EXEC_CLIENT_E_TOO_LONG);
        peer_close(&p);
        fd = peer_open(&p);
        for (start.n_argv = 0; start.n_argv < most; start.n_argv++)
                argv[start.n_argv] = (ProtobufCBinaryData){.len = sizeof(text) - 1, .data = text};
        CU_ASSERT_EQUAL(exec_client_start(p.base, fd, &start, &seeing, &s, &s.x), EXEC_CLIENT_E_TOO_LONG);
        peer_close(&p);
}

/* Takes the frames of one start; the texts must be those of argv, in their order, and as many as of env. */
static unsigned hear_start(struct peer *p, const Wb__ExecStart *start)
{
        size_t argv_n = 0, env_n = 0;
        unsigned frames = 0;
        bool more = true;

        while (more) {
                Wb__ToAgent *m = peer_hear(p);
                bool first = frames++ == 0;

                CU_ASSERT_PTR_NOT_NULL_FATAL(m);
                CU_ASSERT_EQUAL_FATAL(
                        m->body_case, first ? WB__TO_AGENT__BODY_EXEC_START : WB__TO_AGENT__BODY_EXEC_START_MORE);
                more = first ? m->exec_start->more : m->exec_start_more->more;
                CU_ASSERT_TRUE(!first || strcmp(m->exec_start->user, "me") == 0);
                for (size_t i = 0; i < (first ? m->exec_start->n_argv : m->exec_start_more->n_argv); i++, argv_n++) {
                        ProtobufCBinaryData *text = first ? m->exec_start->argv : m->exec_start_more->argv;

                        CU_ASSERT_EQUAL_FATAL(text[i].len, start->argv[argv_n].len);
                        CU_ASSERT_EQUAL(memcmp(text[i].data, start->argv[argv_n].data, text[i].len), 0);
                }
                env_n += first ? m->exec_start->n_env : m->exec_start_more->n_env;
                codec_free_to_agent(m);
        }
        CU_ASSERT_EQUAL(argv_n, start->n_argv);
        CU_ASSERT_EQUAL(env_n, start->n_env);
        return frames;
}

static void test_a_large_start_goes_in_pieces(void)
{
        enum { LONG = 40, SHORT = 20000 };
        static uint8_t text[LONG][WB_ARG_MAX_BYTES - 1];
        static ProtobufCBinaryData argv[LONG], env[SHORT];
        Wb__ExecStart start = WB__EXEC_START__INIT;
        struct seen s = {0};
        struct peer p;
        int fd;

        start.user = (char *)(uintptr_t) "me";
        start.argv = argv;
        start.env = env;
        for (size_t i = 0; i < LONG; i++) {
                memset(text[i], 'A' + (int)i, sizeof(text[i]));
                argv[i] = (ProtobufCBinaryData){.len = sizeof(text[i]), .data = text[i]};
        }
        for (size_t i = 0; i < SHORT; i++)
                env[i] = (ProtobufCBinaryData){.len = 3, .data = (uint8_t *)(uintptr_t) "A=1"};
        for (start.n_argv = 1; start.n_argv <= LONG; start.n_argv += LONG - 1) {
                start.n_env = start.n_argv == LONG ? SHORT : 1;
                fd = peer_open(&p);
                CU_ASSERT_EQUAL_FATAL(exec_client_start(p.base, fd, &start, &seeing, &s, &s.x), 0);
                CU_ASSERT_EQUAL(exec_client_signal(s.x, 15), 0); /* comes behind all of it */
                CU_ASSERT_EQUAL(hear_start(&p, &start) == 1, start.n_argv == 1);
                hear_signal(&p, 15);
                exec_client_free(s.x);
                peer_close(&p);
        }
}

static void test_a_call_ends_at_its_deadline(void)
{
        struct peer p;
        int fd = peer_open(&p);
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecList list = WB__EXEC_LIST__INIT;
        Wb__FromAgent *answer;

        m.body_case = WB__TO_AGENT__BODY_EXEC_LIST;
        m.exec_list = &list;
        CU_ASSERT_EQUAL(client_ask(fd, clock_monotonic_ns() + 20 * NSEC_PER_MSEC, &m, &answer), -ETIMEDOUT);
        peer_say_error(&p, "no");
        CU_ASSERT_EQUAL_FATAL(client_ask(fd, clock_monotonic_ns() + NSEC_PER_SEC, &m, &answer), 0);
        CU_ASSERT_STRING_EQUAL(answer->error->reason, "no");
        codec_free_from_agent(answer);
        CU_ASSERT(io_write_full(p.fd, "\0\0\0\1", 4) == 0);
        CU_ASSERT_EQUAL(shutdown(p.fd, SHUT_WR), 0);
        CU_ASSERT_EQUAL(client_ask(fd, clock_monotonic_ns() + NSEC_PER_SEC, &m, &answer), -EPIPE);
        close(fd);
        peer_close(&p);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"streams, offsets and the result arrive", test_streams_and_result},
                {"input keeps to the window", test_input_keeps_to_the_window},
                {"credit is given back in pieces", test_credit_is_given_back_in_pieces},
                {"a refusal has its status", test_a_refusal_has_its_status},
                {"a peer that breaks the rules is left", test_a_peer_that_breaks_the_rules_is_left},
                {"a handler may free it", test_a_handler_may_free_it},
                {"what does not fit is not sent", test_what_does_not_fit_is_not_sent},
                {"a large start goes in pieces", test_a_large_start_goes_in_pieces},
                {"a call ends at its deadline", test_a_call_ends_at_its_deadline},
                CU_TEST_INFO_NULL,
        };

        (void)signal(SIGPIPE, SIG_IGN);
        return suite_run("client", tests);
}
