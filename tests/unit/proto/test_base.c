/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "tests/support/suite.h"

static void test_numbers_are_strict(void)
{
        uint64_t v = 7;

        CU_ASSERT_EQUAL(parse_u64("18446744073709551615", UINT64_MAX, &v), 0);
        CU_ASSERT_EQUAL(v, UINT64_MAX);
        CU_ASSERT_EQUAL(parse_u64("18446744073709551616", UINT64_MAX, &v), -ERANGE);
        CU_ASSERT_EQUAL(parse_u64("11", 10, &v), -ERANGE);
        CU_ASSERT_EQUAL(parse_u64("", 10, &v), -EINVAL);
        CU_ASSERT_EQUAL(parse_u64("+1", 10, &v), -EINVAL);
        CU_ASSERT_EQUAL(parse_u64(" 1", 10, &v), -EINVAL);
        CU_ASSERT_EQUAL(parse_u64("1 ", 10, &v), -EINVAL);
        CU_ASSERT_EQUAL(v, UINT64_MAX);
}

static void test_durations_and_sizes(void)
{
        uint64_t v = 0;

        CU_ASSERT(parse_duration_ms("250ms", &v) == 0 && v == 250);
        CU_ASSERT(parse_duration_ms("3s", &v) == 0 && v == 3000);
        CU_ASSERT(parse_duration_ms("2h", &v) == 0 && v == 7200000);
        CU_ASSERT_EQUAL(parse_duration_ms("3", &v), -EINVAL);
        CU_ASSERT_EQUAL(parse_duration_ms("99999999999h", &v), -ERANGE);
        CU_ASSERT(parse_size("64M", &v) == 0 && v == 64u << 20);
        CU_ASSERT_EQUAL(parse_size("64MB", &v), -EINVAL);
        CU_ASSERT_EQUAL(parse_size("18446744073709551615K", &v), -ERANGE);
}

static void test_ports(void)
{
        uint16_t port = 0;

        CU_ASSERT(parse_port("65535", 5, &port) == 0 && port == 65535);
        CU_ASSERT_EQUAL(parse_port("65536", 5, &port), -ERANGE);
        CU_ASSERT_EQUAL(parse_port("080", 3, &port), -EINVAL);
        CU_ASSERT_EQUAL(parse_port("0", 1, &port), -EINVAL);
        CU_ASSERT_EQUAL(parse_port("", 0, &port), -EINVAL);
}

static void test_time_is_rfc3339(void)
{
        char text[CLOCK_TEXT_BYTES];

        clock_format(UINT64_C(1764454398) * NSEC_PER_SEC + 678901234, text);
        CU_ASSERT_STRING_EQUAL(text, "2025-11-29T22:13:18.678901Z");
}

/* What a peer sent may stand in a log line; it must not begin another. */
static void test_log_lines_cannot_be_forged(void)
{
        char line[LOG_LINE_BYTES + 1] = {0};
        int p[2];

        CU_ASSERT_EQUAL_FATAL(pipe2(p, O_CLOEXEC), 0);
        unsetenv("JOURNAL_STREAM");
        log_setup("test", LOG_LEVEL_INFO);
        log_set_fd(p[1]);
        log_warning("host %s", "a\nerror: b\x1b[2J");
        log_debug("too low");
        log_set_fd(STDERR_FILENO);
        close_fd(p[1]);
        CU_ASSERT(read(p[0], line, LOG_LINE_BYTES) > 0);
        close_fd(p[0]);
        CU_ASSERT_STRING_EQUAL(line, "test: warning: host a\\x0aerror: b\\x1b[2J\n");
}

static void test_descriptors_travel(void)
{
        int pair[2], fds[4] = {-1, -1, -1, -1}, devnull = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int three[] = {devnull, devnull, devnull};
        size_t n = 4;
        char text[8] = {0};

        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        CU_ASSERT_EQUAL(io_send_fds(pair[0], "hello", 5, three, 3), 5);
        CU_ASSERT_EQUAL(io_recv_fds(pair[1], text, sizeof(text), fds, &n), 5);
        CU_ASSERT_EQUAL(n, 3);
        for (size_t i = 0; i < n; i++) {
                CU_ASSERT(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
                close_fd(fds[i]);
        }
        n = 1;
        CU_ASSERT_EQUAL(io_send_fds(pair[0], "hello", 5, three, 3), 5);
        CU_ASSERT_EQUAL(io_recv_fds(pair[1], text, sizeof(text), fds, &n), -EMSGSIZE);
        close_fd(devnull);
        close_fd(pair[0]);
        close_fd(pair[1]);
}

struct sample {
        bool json;
        const char *name;
        uint64_t timeout_ms;
        struct option_strings env;
};

static const struct option_spec sample_specs[] = {
        {"json", 0, OPTION_FLAG, offsetof(struct sample, json), NULL, "as JSON"},
        {"name", 'n', OPTION_STRING, offsetof(struct sample, name), "NAME", "a name"},
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct sample, timeout_ms), "D", "a duration"},
        {"env", 0, OPTION_STRINGS, offsetof(struct sample, env), "K=V", "a variable"},
};
static const struct option_table sample_table = {
        "sample [OPTION]... ARG...", "A sample.", "sample -n x", sample_specs, 4, false};

static int parse_sample(struct sample *s, int argc, char **argv, char ***rest, size_t *rest_n)
{
        FILE *saved = stderr;
        int r;

        stderr = fopen("/dev/null", "w");
        r = options_parse(&sample_table, argc, argv, s, rest, rest_n);
        (void)fclose(stderr);
        stderr = saved;
        return r;
}

static void test_options_end_at_the_command(void)
{
        char *argv[] = {"sample", "-n", "x", "--timeout=2s", "--env", "A=1", "--env=B=2", "--", "ls", "-l", NULL};
        struct sample s = {0};
        char **rest;
        size_t n;

        CU_ASSERT_EQUAL(parse_sample(&s, 10, argv, &rest, &n), 0);
        CU_ASSERT_STRING_EQUAL(s.name, "x");
        CU_ASSERT_EQUAL(s.timeout_ms, 2000);
        CU_ASSERT_EQUAL_FATAL(s.env.n, 2);
        CU_ASSERT_STRING_EQUAL(s.env.items[1], "B=2");
        CU_ASSERT_EQUAL_FATAL(n, 2);
        CU_ASSERT_STRING_EQUAL(rest[0], "ls");
        CU_ASSERT_STRING_EQUAL(rest[1], "-l");
        option_strings_done(&s.env);
}

static void test_wrong_options_are_refused(void)
{
        char *wrong[][3] = {{"sample", "--nope", NULL}, {"sample", "--json=1", NULL}, {"sample", "--timeout=2", NULL},
                {"sample", "-n", NULL}, {"sample", "-x", NULL}};

        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                struct sample s = {0};
                char **rest;
                size_t n;

                CU_ASSERT_EQUAL(parse_sample(&s, 2, wrong[i], &rest, &n), OPTIONS_E_USAGE);
        }
}

static void test_intermixed_options(void)
{
        char *argv[] = {"sample", "one", "--json", "two", "--", "--three", NULL};
        struct option_table table = sample_table;
        struct sample s = {0};
        char **rest;
        size_t n;

        table.intermixed = true;
        CU_ASSERT_EQUAL(options_parse(&table, 6, argv, &s, &rest, &n), 0);
        CU_ASSERT_TRUE(s.json);
        CU_ASSERT_EQUAL_FATAL(n, 3);
        CU_ASSERT_STRING_EQUAL(rest[0], "one");
        CU_ASSERT_STRING_EQUAL(rest[1], "two");
        CU_ASSERT_STRING_EQUAL(rest[2], "--three");
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"numbers are strict", test_numbers_are_strict},
                {"durations and sizes", test_durations_and_sizes},
                {"ports", test_ports},
                {"time is RFC 3339", test_time_is_rfc3339},
                {"log lines cannot be forged", test_log_lines_cannot_be_forged},
                {"descriptors travel", test_descriptors_travel},
                {"options end at the command", test_options_end_at_the_command},
                {"wrong options are refused", test_wrong_options_are_refused},
                {"intermixed options", test_intermixed_options},
                CU_TEST_INFO_NULL,
        };

        return suite_run("base", tests);
}
