/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/control.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

#define IDLE_MS 150

/* A control socket of a broker without VMs. */
struct world {
        struct registry registry;
        struct control *control;
        char dir[32];
        struct sockaddr_un address;
};

static void turn(struct world *w, unsigned ms)
{
        uint64_t end_ns = clock_monotonic_ns() + ms * NSEC_PER_MSEC;

        while (clock_monotonic_ns() < end_ns) {
                (void)event_base_loop(w->registry.base, EVLOOP_NONBLOCK);
                (void)usleep(1000);
        }
}

static void world_start(struct world *w)
{
        int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        *w = (struct world){.dir = "/tmp/wb-test-control-XXXXXX", .address = {.sun_family = AF_UNIX}};
        TAILQ_INIT(&w->registry.vms);
        w->registry.base = event_base_new();
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->dir));
        (void)snprintf(w->address.sun_path, sizeof(w->address.sun_path), "%s/s", w->dir);
        CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&w->address, sizeof(w->address)), 0);
        CU_ASSERT_EQUAL_FATAL(listen(listener, 128), 0);
        CU_ASSERT_EQUAL_FATAL(control_new(&w->registry, listener, IDLE_MS, &w->control), 0);
}

static void world_stop(struct world *w)
{
        control_free(w->control);
        event_base_free(w->registry.base);
        (void)unlink(w->address.sun_path);
        (void)rmdir(w->dir);
}

static int dial(struct world *w)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&w->address, sizeof(w->address)), 0);
        return fd;
}

/* What has come: 0 at the end of the connection, -EAGAIN. */
static ssize_t take(int fd, char *to, size_t room)
{
        ssize_t n = recv(fd, to, room - 1, MSG_DONTWAIT);

        to[n > 0 ? n : 0] = '\0';
        return n < 0 ? -errno : n;
}

static void say(int fd, const char *text)
{
        CU_ASSERT_EQUAL(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void test_a_silent_peer_is_closed(void)
{
        struct world w;
        char got[256];
        int fd;

        world_start(&w);
        fd = dial(&w);
        turn(&w, IDLE_MS / 3);
        CU_ASSERT_EQUAL(take(fd, got, sizeof(got)), -EAGAIN);
        turn(&w, IDLE_MS * 2);
        CU_ASSERT_EQUAL(take(fd, got, sizeof(got)), 0);
        (void)close(fd);
        world_stop(&w);
}

/* A byte now and then is no request. */
static void test_a_slow_peer_is_closed(void)
{
        struct world w;
        char got[256];
        int fd;

        world_start(&w);
        fd = dial(&w);
        for (unsigned i = 0; i < 5; i++) {
                (void)send(fd, "{", 1, MSG_NOSIGNAL);
                turn(&w, IDLE_MS / 3);
        }
        CU_ASSERT(take(fd, got, sizeof(got)) <= 0 && send(fd, "x", 1, MSG_NOSIGNAL) < 0);
        (void)close(fd);
        world_stop(&w);
}

static void test_each_request_has_its_time(void)
{
        struct world w;
        char got[256];
        int fd;

        world_start(&w);
        fd = dial(&w);
        for (unsigned i = 0; i < 4; i++) {
                turn(&w, IDLE_MS / 2);
                say(fd, "{\"op\":\"vm_ls\"}\n");
                turn(&w, 10);
                CU_ASSERT(take(fd, got, sizeof(got)) > 0 && strstr(got, "\"vms\":[]"));
        }
        (void)close(fd);
        turn(&w, 10);
        world_stop(&w);
}

static void test_the_peers_are_bounded(void)
{
        struct world w;
        int fds[CONTROL_PEERS_MAX + 1];
        char got[256];

        world_start(&w);
        for (unsigned i = 0; i <= CONTROL_PEERS_MAX; i++)
                fds[i] = dial(&w);
        turn(&w, 30);
        CU_ASSERT_EQUAL(take(fds[CONTROL_PEERS_MAX], got, sizeof(got)), 0);
        CU_ASSERT_EQUAL(take(fds[0], got, sizeof(got)), -EAGAIN);
        turn(&w, IDLE_MS * 2);
        for (unsigned i = 0; i <= CONTROL_PEERS_MAX; i++)
                (void)close(fds[i]);
        /* The silent ones' places are free. */
        fds[0] = dial(&w);
        say(fds[0], "{\"op\":\"vm_ls\"}\n");
        turn(&w, 30);
        CU_ASSERT(take(fds[0], got, sizeof(got)) > 0);
        (void)close(fds[0]);
        turn(&w, 10);
        world_stop(&w);
}

/* Answers come in the order of the requests, however these arrive. */
static void test_several_requests_at_once(void)
{
        struct world w;
        char got[512];
        int fd;

        world_start(&w);
        fd = dial(&w);
        say(fd, "{\"op\":\"vm_ls\"}\n{\"op\":\"nope\"}\n{\"op\":\"vm");
        turn(&w, 20);
        say(fd, "_ls\"}\n");
        turn(&w, 20);
        CU_ASSERT(take(fd, got, sizeof(got)) > 0);
        CU_ASSERT_STRING_EQUAL(got, "{\"ok\":true,\"vms\":[]}\n"
                                    "{\"ok\":false,\"error\":\"there is no such operation\",\"invalid\":true}\n"
                                    "{\"ok\":true,\"vms\":[]}\n");
        (void)close(fd);
        turn(&w, 10);
        world_stop(&w);
}

/* What it asks for is not worked off while it does not take the answers, which are many times as long here. */
static void test_a_peer_that_reads_nothing(void)
{
        static const char line[] = "{\"op\":\"stats\"}\n";
        struct world w;
        size_t sent = 0, before;
        char got[65536];
        uint64_t end_ns;
        int fd;

        world_start(&w);
        fd = dial(&w);
        say(fd, line);
        turn(&w, 10);
        CU_ASSERT(take(fd, got, sizeof(got)) > 6 * (ssize_t)sizeof(line));
        before = mallinfo2().uordblks;
        end_ns = clock_monotonic_ns() + IDLE_MS * NSEC_PER_MSEC * 2 / 3;
        while (sent < 1024 * 1024 && clock_monotonic_ns() < end_ns) {
                ssize_t n = send(fd, line, sizeof(line) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n > 0)
                        sent += (size_t)n;
                else
                        (void)event_base_loop(w.registry.base, EVLOOP_NONBLOCK);
        }
        turn(&w, 10);
        CU_ASSERT(sent > 100 * 1024);
        CU_ASSERT(mallinfo2().uordblks - before < sent * 2);
        turn(&w, IDLE_MS * 2);
        CU_ASSERT_EQUAL(send(fd, line, sizeof(line) - 1, MSG_NOSIGNAL), -1); /* closed in the end */
        (void)close(fd);
        world_stop(&w);
}

static void test_a_faulty_request_is_not_quoted(void)
{
        struct world w;
        char got[512];
        int fd;

        world_start(&w);
        fd = dial(&w);
        say(fd, "{\"op\":\"secret_put\",\"value\":\"c2VjcmV0\n");
        turn(&w, 20);
        CU_ASSERT(take(fd, got, sizeof(got)) > 0 && strstr(got, "no JSON") && !strstr(got, "c2Vj"));
        say(fd, "{\"op\":\"vm_ls\"} c2VjcmV0\n");
        turn(&w, 20);
        CU_ASSERT(take(fd, got, sizeof(got)) > 0 && strstr(got, "no JSON") && !strstr(got, "c2Vj"));
        say(fd, "[\"c2VjcmV0\"]\n");
        turn(&w, 20);
        CU_ASSERT(take(fd, got, sizeof(got)) > 0 && strstr(got, "something else") && !strstr(got, "c2Vj"));
        (void)close(fd);
        turn(&w, 10);
        world_stop(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a silent peer is closed", test_a_silent_peer_is_closed},
                {"a slow peer is closed", test_a_slow_peer_is_closed},
                {"each request has its time", test_each_request_has_its_time},
                {"the peers are bounded", test_the_peers_are_bounded},
                {"several requests at once", test_several_requests_at_once},
                {"a peer that reads nothing", test_a_peer_that_reads_nothing},
                {"a faulty request is not quoted", test_a_faulty_request_is_not_quoted},
                CU_TEST_INFO_NULL,
        };

        return suite_run("control_socket", tests);
}
