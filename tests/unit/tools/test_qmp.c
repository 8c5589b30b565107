/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/qmp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/io.h"
#include "tests/support/suite.h"

static struct qmp *start(int *ret_other)
{
        struct qmp *q = NULL;
        int fds[2];

        CU_ASSERT_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        CU_ASSERT_FATAL(qmp_new(fds[0], &q) == 0);
        *ret_other = fds[1];
        return q;
}

static void say(int fd, const char *text)
{
        CU_ASSERT(io_write_full(fd, text, strlen(text)) == 0);
}

static void test_objects_by_line_however_they_come(void)
{
        _cleanup_close_ int other = -1;
        _cleanup_(qmp_freep) struct qmp *q = start(&other);
        static const char text[] = "{\"return\": {}}\r\n{\"event\": \"STOP\"}\r\n{\"a";
        json_t *object = NULL;

        CU_ASSERT(qmp_receive(q, &object) == QMP_E_AGAIN && object == NULL);
        say(other, text);
        CU_ASSERT_FATAL(qmp_receive(q, &object) == 0);
        CU_ASSERT(json_object_get(object, "return") != NULL);
        json_decref(object);
        CU_ASSERT_FATAL(qmp_receive(q, &object) == 0);
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(object, "event")), "STOP");
        json_decref(object);
        CU_ASSERT(qmp_receive(q, &object) == QMP_E_AGAIN);
        for (const char *c = "\": 1}\n"; *c; c++) {
                CU_ASSERT(qmp_receive(q, &object) == QMP_E_AGAIN);
                CU_ASSERT(io_write_full(other, c, 1) == 0);
        }
        CU_ASSERT_FATAL(qmp_receive(q, &object) == 0);
        CU_ASSERT(json_integer_value(json_object_get(object, "a")) == 1);
        json_decref(object);
        other = close_fd(other);
        CU_ASSERT(qmp_receive(q, &object) == -EPIPE);
}

static void test_what_is_no_object_ends_it(void)
{
        static const char *const wrong[] = {
                "\n", "hello\n", "[1]\n", "{\"a\":1} {}\n", "{\"a\"\n", "\"text\"\n", "{\"a\":\"\xff\"}\n"};

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                _cleanup_close_ int other = -1;
                _cleanup_(qmp_freep) struct qmp *q = start(&other);
                json_t *object = NULL;

                say(other, wrong[i]);
                CU_ASSERT(qmp_receive(q, &object) == -EPROTO && object == NULL);
        }
}

static void test_a_line_has_a_bound(void)
{
        _cleanup_close_ int other = -1;
        _cleanup_(qmp_freep) struct qmp *q = start(&other);
        char spaces[1024];
        json_t *object = NULL;

        memset(spaces, ' ', sizeof(spaces));
        for (size_t n = 0; n < QMP_LINE_MAX_BYTES; n += sizeof(spaces)) {
                CU_ASSERT(qmp_receive(q, &object) == QMP_E_AGAIN);
                CU_ASSERT(io_write_full(other, spaces, sizeof(spaces)) == 0);
        }
        CU_ASSERT(qmp_receive(q, &object) == -EPROTO);
}

static void test_a_command_and_its_descriptor(void)
{
        _cleanup_close_ int other = -1;
        _cleanup_(qmp_freep) struct qmp *q = start(&other);
        char text[256] = "";
        int fds[2];
        size_t fds_n = 2;
        ssize_t n;

        CU_ASSERT(qmp_send(q, "stop", NULL, -1) == 0);
        CU_ASSERT(read(other, text, sizeof(text)) > 0);
        CU_ASSERT_STRING_EQUAL(text, "{\"execute\":\"stop\"}\n");
        CU_ASSERT(qmp_send(q, "getfd", json_pack("{s:s}", "fdname", "state"), other) == 0);
        n = io_recv_fds(other, text, sizeof(text) - 1, fds, &fds_n);
        CU_ASSERT_FATAL(n > 0 && fds_n == 1);
        text[n] = '\0';
        if (n == 1) /* the descriptor comes with the first byte */
                n += read(other, text + 1, sizeof(text) - 2);
        text[n] = '\0';
        CU_ASSERT_STRING_EQUAL(text, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n");
        close_fd(fds[0]);
        other = close_fd(other);
        CU_ASSERT(qmp_send(q, "stop", NULL, -1) == -EPIPE);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"objects by line, however they come", test_objects_by_line_however_they_come},
                {"what is no object ends it", test_what_is_no_object_ends_it},
                {"a line has a bound", test_a_line_has_a_bound},
                {"a command and its descriptor", test_a_command_and_its_descriptor},
                CU_TEST_INFO_NULL,
        };

        return suite_run("qmp", tests);
}
