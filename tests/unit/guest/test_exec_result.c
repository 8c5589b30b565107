/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "guest/exec_internal.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "tests/support/suite.h"

/* What the host makes of an exec that ran out of memory; NULL if it cannot read it. */
static Wb__FromAgent *told_of(char *cmd)
{
        struct exec_table table = {0};
        struct exec x = {
                .table = &table,
                .id = "x1-00000001",
                .state = EXEC_ENDED,
                .cmd = cmd,
                .limits = {.memory_bytes = 1 << 20},
                .wait_status = SIGKILL,
                .usage = {.oom_kills = 3},
        };
        Wb__ExecResult result = WB__EXEC_RESULT__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT, *told = NULL;
        char detail[256];
        uint8_t *frame;
        size_t n;

        exec_fill_result(&x, &result, detail, sizeof(detail));
        m.body_case = WB__FROM_AGENT__BODY_EXEC_RESULT;
        m.exec_result = &result;
        CU_ASSERT_EQUAL_FATAL(codec_pack_from_agent(&m, &frame, &n), 0);
        (void)codec_unpack_from_agent(frame + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES, &told);
        free(frame);
        return told;
}

static void test_a_command_that_is_no_text(void)
{
        char cmd[] = "/tmp/\xff\n";
        Wb__FromAgent *told = told_of(cmd);

        CU_ASSERT_PTR_NOT_NULL_FATAL(told);
        CU_ASSERT_STRING_EQUAL(told->exec_result->reason, "oom");
        CU_ASSERT_STRING_EQUAL(
                told->exec_result->detail, "/tmp/\\xff\\x0a: 3 killed for lack of memory, limit 1048576 bytes");
        codec_free_from_agent(told);
}

static void test_a_long_command_leaves_room(void)
{
        char cmd[4097];
        Wb__FromAgent *told;

        memset(cmd, 'a', sizeof(cmd) - 1);
        cmd[sizeof(cmd) - 1] = '\0';
        told = told_of(cmd);
        CU_ASSERT_PTR_NOT_NULL_FATAL(told);
        CU_ASSERT_PTR_NOT_NULL(strstr(told->exec_result->detail, ": 3 killed for lack of memory, limit 1048576 bytes"));
        codec_free_from_agent(told);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a command that is no text", test_a_command_that_is_no_text},
                {"a long command leaves room", test_a_long_command_leaves_room},
                CU_TEST_INFO_NULL,
        };

        return suite_run("exec_result", tests);
}
