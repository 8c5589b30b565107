/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_rounds DIR COUNT: COUNT execs of /bin/true one after another, each over a connection of its own as wbctl makes
 * it; prints the median and the 99th percentile of a round in microseconds, and the median of the same number of plain
 * posix_spawn() and waitpid() of the same program, taken in turn with them.
 */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <event2/event.h>

#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"
#include "proto/client/exec_client.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"

#define ROUNDS_MAX 100000u
#define DIAL_NS    (5 * NSEC_PER_SEC)

struct round {
        struct event_base *base;
        int exit_status;
};

static void on_output(void *userdata, Wb__Stream stream, uint64_t offset, const uint8_t *data, size_t n, bool eof)
{
        (void)userdata, (void)stream, (void)offset, (void)data, (void)n, (void)eof;
}

static void on_ended(void *userdata, const struct exec_outcome *outcome)
{
        struct round *round = userdata;

        round->exit_status = outcome->exit_status;
        (void)event_base_loopbreak(round->base);
}

static int run_round(struct event_base *base, const struct transport *t)
{
        static const struct exec_client_handler handler = {.output = on_output, .ended = on_ended};
        struct round round = {.base = base, .exit_status = -1};
        ProtobufCBinaryData argv = {.data = (uint8_t *)(uintptr_t) "/bin/true", .len = 9};
        Wb__ExecStart start = WB__EXEC_START__INIT;
        struct exec_client *client = NULL;
        int fd = -1, last = 0, r;

        start.argv = &argv;
        start.n_argv = 1;
        start.stdin_closed = true;
        r = transport_dial_guest(t, WB_PORT_CONTROL, clock_monotonic_ns() + DIAL_NS, &fd, &last);
        if (r == 0)
                r = exec_client_start(base, fd, &start, &handler, &round, &client);
        if (r != 0)
                return log_errno(r, "exec");
        (void)event_base_dispatch(base);
        exec_client_free(client);
        return round.exit_status;
}

static int compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

static int run_plain(void)
{
        static char path[] = "/bin/true";
        char *argv[] = {path, NULL};
        int status = -1;
        pid_t pid;

        if (posix_spawn(&pid, argv[0], NULL, NULL, argv, NULL) != 0 || waitpid(pid, &status, 0) < 0)
                return -1;
        return status;
}

/* In turn, so that whatever else the machine does hits both alike. */
static int measure(
        struct event_base *base, const struct transport *t, uint64_t count, uint64_t *exec_ns, uint64_t *plain_ns)
{
        for (uint64_t i = 0; i < count; i++) {
                uint64_t start_ns = clock_monotonic_ns();

                if (run_round(base, t) != 0)
                        return -1;
                exec_ns[i] = clock_monotonic_ns() - start_ns;
                start_ns = clock_monotonic_ns();
                if (run_plain() != 0)
                        return -1;
                plain_ns[i] = clock_monotonic_ns() - start_ns;
        }
        qsort(exec_ns, count, sizeof(*exec_ns), compare);
        qsort(plain_ns, count, sizeof(*plain_ns), compare);
        return 0;
}

int main(int argc, char **argv)
{
        struct transport t = {.kind = TRANSPORT_UNIX};
        struct event_base *base = event_base_new();
        uint64_t count = 0, *ns;
        int r;

        log_setup("exec_rounds", LOG_LEVEL_INFO);
        (void)signal(SIGPIPE, SIG_IGN);
        if (argc != 3 || parse_u64(argv[2], ROUNDS_MAX, &count) < 0 || !count || !base) {
                (void)fprintf(stderr, "usage: exec_rounds DIR COUNT\n");
                return 2;
        }
        t.path = argv[1];
        ns = calloc(2 * count, sizeof(*ns));
        r = ns ? measure(base, &t, count, ns, ns + count) : -1;
        if (r == 0)
                printf("%llu %llu %llu\n", (unsigned long long)(ns[count / 2] / NSEC_PER_USEC),
                        (unsigned long long)(ns[count * 99 / 100] / NSEC_PER_USEC),
                        (unsigned long long)(ns[count + count / 2] / NSEC_PER_USEC));
        free(ns);
        event_base_free(base);
        return r == 0 ? 0 : 1;
}
