/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"

struct bench {
        struct event_base *base;
        int theirs; /* the command's end of the pipe */
        struct output out;
        struct input in;
        unsigned moves;
};

static void on_moved(struct output *o, void *userdata)
{
        (void)o;
        ((struct bench *)userdata)->moves++;
}

static void on_written(struct input *in, void *userdata)
{
        (void)in;
        ((struct bench *)userdata)->moves++;
}

static void turn(struct bench *b)
{
        for (int i = 0; i < 8; i++)
                event_base_loop(b->base, EVLOOP_NONBLOCK);
}

static void open_output(struct bench *b)
{
        int ends[2];

        *b = (struct bench){.base = event_base_new()};
        CU_ASSERT_FATAL(b->base && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        b->theirs = ends[1];
        output_open(&b->out, b->base, ends[0], on_moved, b);
}

static void close_output(struct bench *b)
{
        output_done(&b->out);
        close(b->theirs);
        event_base_free(b->base);
}

static void write_all(int fd, size_t n)
{
        char bytes[1024] = {0};

        while (n) {
                ssize_t put = write(fd, bytes, n < sizeof(bytes) ? n : sizeof(bytes));

                CU_ASSERT_FATAL(put > 0);
                n -= (size_t)put;
        }
}

static void test_nothing_is_read_that_is_not_allowed(void)
{
        struct bench b;

        open_output(&b);
        write_all(b.theirs, 1000);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 0);
        output_allow(&b.out, 10);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 10);
        output_allow(&b.out, UINT64_MAX);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 1000);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_OPEN);
        close_output(&b);
}

static void test_the_end_closes_without_memory(void)
{
        struct bench b;

        open_output(&b);
        output_allow(&b.out, UINT64_MAX);
        close(b.theirs);
        b.theirs = -1;
        turn(&b);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_CLOSED);
        CU_ASSERT_FALSE(b.out.cut);
        CU_ASSERT_EQUAL(b.out.replay.room, 0);
        CU_ASSERT_EQUAL(b.moves, 1);
        close_output(&b);
}

/* What the leader wrote is read however late, what comes after the cut is not. */
static void test_a_cut_keeps_what_was_written_before_the_end(void)
{
        struct bench b;

        open_output(&b);
        output_allow(&b.out, 100);
        write_all(b.theirs, 3000);
        turn(&b);
        output_leader_ended(&b.out);
        write_all(b.theirs, 500);
        output_cut(&b.out);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 100);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_LAST);
        output_allow(&b.out, UINT64_MAX);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 3000);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_CLOSED);
        CU_ASSERT_TRUE(b.out.cut);
        close_output(&b);
}

static void test_a_cut_with_all_writers_gone_cuts_nothing(void)
{
        struct bench b;

        open_output(&b);
        write_all(b.theirs, 3000);
        output_leader_ended(&b.out);
        write_all(b.theirs, 500);
        close(b.theirs);
        b.theirs = -1;
        output_cut(&b.out);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_OPEN);
        output_allow(&b.out, UINT64_MAX);
        turn(&b);
        CU_ASSERT_EQUAL(b.out.replay.end, 3500);
        CU_ASSERT_EQUAL(b.out.state, OUTPUT_CLOSED);
        CU_ASSERT_FALSE(b.out.cut);
        close_output(&b);
}

static void open_input_bench(struct bench *b)
{
        int ends[2];

        *b = (struct bench){.base = event_base_new()};
        CU_ASSERT_FATAL(b->base && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        b->theirs = ends[0];
        CU_ASSERT_EQUAL_FATAL(input_open(&b->in, b->base, ends[1], false, on_written, b), 0);
}

static void close_input_bench(struct bench *b)
{
        input_done(&b->in);
        close(b->theirs);
        event_base_free(b->base);
}

static void test_input_arrives_and_ends(void)
{
        struct bench b;
        char bytes[16];

        open_input_bench(&b);
        CU_ASSERT_EQUAL(input_take(&b.in, 0, (const uint8_t *)"hello", 5, false), 0);
        CU_ASSERT_EQUAL(input_take(&b.in, 5, NULL, 0, true), 0);
        turn(&b);
        CU_ASSERT_EQUAL(read(b.theirs, bytes, sizeof(bytes)), 5);
        CU_ASSERT_EQUAL(read(b.theirs, bytes, sizeof(bytes)), 0);
        CU_ASSERT_EQUAL(b.in.credit_bytes, 5);
        CU_ASSERT_EQUAL(b.in.fd, -1);
        close_input_bench(&b);
}

static void test_input_beyond_the_window_breaks_the_rules(void)
{
        static uint8_t bytes[INPUT_WINDOW_BYTES + 1];
        struct bench b;

        open_input_bench(&b);
        CU_ASSERT_EQUAL(input_take(&b.in, 0, bytes, INPUT_WINDOW_BYTES + 1, false), -EPROTO);
        CU_ASSERT_EQUAL(input_take(&b.in, 0, bytes, INPUT_WINDOW_BYTES, false), 0);
        turn(&b);
        CU_ASSERT(b.in.credit_bytes > 0); /* written, but not given back: it still counts */
        CU_ASSERT_EQUAL(input_take(&b.in, INPUT_WINDOW_BYTES, bytes, 1, false), -EPROTO);
        CU_ASSERT_EQUAL(input_take(&b.in, 7, bytes, 0, false), -EPROTO);
        CU_ASSERT_EQUAL(input_take(&b.in, INPUT_WINDOW_BYTES, NULL, 0, true), 0);
        CU_ASSERT_EQUAL(input_take(&b.in, INPUT_WINDOW_BYTES, NULL, 0, true), -EPROTO);
        close_input_bench(&b);
}

static void test_input_that_nobody_wants_is_no_error(void)
{
        struct bench b;

        open_input_bench(&b);
        close(b.theirs);
        b.theirs = -1;
        CU_ASSERT_EQUAL(input_take(&b.in, 0, (const uint8_t *)"hello", 5, false), 0);
        turn(&b);
        CU_ASSERT_EQUAL(b.in.fd, -1);
        CU_ASSERT_EQUAL(input_take(&b.in, 5, (const uint8_t *)"again", 5, false), 0);
        CU_ASSERT_EQUAL(b.moves, 0);
        close_input_bench(&b);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"nothing is read that is not allowed", test_nothing_is_read_that_is_not_allowed},
                {"the end closes without memory", test_the_end_closes_without_memory},
                {"a cut keeps what was written before the end", test_a_cut_keeps_what_was_written_before_the_end},
                {"a cut with all writers gone cuts nothing", test_a_cut_with_all_writers_gone_cuts_nothing},
                {"input arrives and ends", test_input_arrives_and_ends},
                {"input beyond the window breaks the rules", test_input_beyond_the_window_breaks_the_rules},
                {"input that nobody wants is no error", test_input_that_nobody_wants_is_no_error},
                CU_TEST_INFO_NULL,
        };

        (void)signal(SIGPIPE, SIG_IGN);
        return suite_run("stream", tests);
}
