/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/transport.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "tests/support/suite.h"

/* A VMM's socket that answers each connection with the next of its lines, up to NULL; an empty one closes without a
 * word. */
struct fake_vmm {
        char path[64];
        int listener;
        const char *const *answers;
        pthread_t thread;
};

static void *serve(void *userdata)
{
        struct fake_vmm *vmm = userdata;

        for (const char *const *answer = vmm->answers; *answer; answer++) {
                struct pollfd p = {.fd = vmm->listener, .events = POLLIN};
                char line[64] = {0};

                if (poll(&p, 1, 5000) != 1)
                        break;
                _cleanup_close_ int fd = accept4(vmm->listener, NULL, NULL, SOCK_CLOEXEC);
                if (read(fd, line, sizeof(line) - 1) <= 0 || strcmp(line, "CONNECT 1024\n") != 0)
                        break;
                (void)io_write_full(fd, *answer, strlen(*answer));
        }
        return NULL;
}

static void vmm_start(struct fake_vmm *vmm, const char *const *answers)
{
        char dir[] = "/tmp/wb-transport-XXXXXX";
        struct transport t = {.kind = TRANSPORT_HYBRID, .path = vmm->path};

        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
        (void)snprintf(vmm->path, sizeof(vmm->path), "%s/vm", dir);
        vmm->answers = answers;
        /* The base path itself: PATH_1024 renamed to PATH. */
        char listening[80];
        CU_ASSERT_EQUAL_FATAL(transport_listen_host(&t, 1024, &vmm->listener), 0);
        (void)snprintf(listening, sizeof(listening), "%s_1024", vmm->path);
        CU_ASSERT_EQUAL_FATAL(rename(listening, vmm->path), 0);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&vmm->thread, NULL, serve, vmm), 0);
}

static void vmm_stop(struct fake_vmm *vmm)
{
        pthread_join(vmm->thread, NULL);
        close_fd(vmm->listener);
        (void)unlink(vmm->path);
        *strrchr(vmm->path, '/') = '\0';
        (void)rmdir(vmm->path);
}

static void test_hybrid_retries_and_leaves_what_follows(void)
{
        /* first: closed without a word (nobody listens yet); then the line and the first bytes of the conversation at
         * once */
        static const char *const script[] = {"", "OK 1073741824\nhello", NULL};
        struct fake_vmm vmm;
        struct transport t = {.kind = TRANSPORT_HYBRID, .path = vmm.path};
        char text[6] = {0};
        int fd = -1, last = 0;

        vmm_start(&vmm, script);
        CU_ASSERT_EQUAL_FATAL(transport_dial_guest(&t, 1024, clock_monotonic_ns() + 3 * NSEC_PER_SEC, &fd, &last), 0);
        CU_ASSERT_EQUAL(io_read_full(fd, text, 5), 0);
        CU_ASSERT_STRING_EQUAL(text, "hello");
        close_fd(fd);
        vmm_stop(&vmm);
}

static void test_hybrid_refuses_a_strange_answer(void)
{
        static const char *const script[] = {"HTTP/1.1 400 Bad Request\r\n", NULL};
        struct fake_vmm vmm;
        struct transport t = {.kind = TRANSPORT_HYBRID, .path = vmm.path};
        int fd = -1, last = 0;

        vmm_start(&vmm, script);
        CU_ASSERT_EQUAL(transport_dial_guest(&t, 1024, clock_monotonic_ns() + 3 * NSEC_PER_SEC, &fd, &last), -EPROTO);
        CU_ASSERT_EQUAL(fd, -1);
        vmm_stop(&vmm);
}

static void test_nobody_there_ends_at_the_deadline(void)
{
        struct transport t = {.kind = TRANSPORT_UNIX, .path = "/nonexistent"};
        uint64_t start_ns = clock_monotonic_ns();
        int fd = -1, last = 0;

        CU_ASSERT_EQUAL(transport_dial_guest(&t, 1024, start_ns + 100 * NSEC_PER_MSEC, &fd, &last), -ETIMEDOUT);
        CU_ASSERT_EQUAL(last, -ENOENT);
        CU_ASSERT(clock_monotonic_ns() - start_ns < NSEC_PER_SEC);
}

static void test_a_stale_socket_is_replaced_a_living_one_not(void)
{
        char dir[] = "/tmp/wb-transport-XXXXXX", path[64];
        struct transport t = {.kind = TRANSPORT_UNIX, .path = dir};
        int first = -1, second = -1;

        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
        CU_ASSERT_EQUAL(transport_listen_host(&t, 1025, &first), 0);
        CU_ASSERT_EQUAL(transport_listen_host(&t, 1025, &second), -EADDRINUSE);
        close_fd(first);
        CU_ASSERT_EQUAL(transport_listen_host(&t, 1025, &second), 0);
        close_fd(second);
        (void)snprintf(path, sizeof(path), "%s/1025", dir);
        (void)unlink(path);
        (void)rmdir(dir);
}

static void test_a_path_too_long_is_said(void)
{
        char path[200];
        struct transport t = {.kind = TRANSPORT_UNIX, .path = path};
        int fd = -1;

        memset(path, 'x', sizeof(path) - 1);
        path[sizeof(path) - 1] = '\0';
        CU_ASSERT_EQUAL(transport_listen_host(&t, 1025, &fd), -ENAMETOOLONG);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"hybrid retries, and leaves what follows the OK line", test_hybrid_retries_and_leaves_what_follows},
                {"hybrid refuses a strange answer", test_hybrid_refuses_a_strange_answer},
                {"nobody there ends at the deadline", test_nobody_there_ends_at_the_deadline},
                {"a stale socket is replaced, a living one not", test_a_stale_socket_is_replaced_a_living_one_not},
                {"a path too long is said", test_a_path_too_long_is_said},
                CU_TEST_INFO_NULL,
        };

        return suite_run("transport", tests);
}
