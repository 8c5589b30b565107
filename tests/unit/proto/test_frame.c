/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/limits.h"
#include "tests/support/suite.h"

static void test_two_frames_in_one_read(void)
{
        static const uint8_t bytes[] = {0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 0xff};
        struct frame_reader reader = {0};
        const uint8_t *p = bytes, *payload = NULL;
        size_t n = sizeof(bytes), payload_n = 99;

        CU_ASSERT_EQUAL(frame_read(&reader, &p, &n, &payload, &payload_n), 0);
        CU_ASSERT_EQUAL(payload_n, 2);
        CU_ASSERT(memcmp(payload, "ab", 2) == 0);
        CU_ASSERT_EQUAL(frame_read(&reader, &p, &n, &payload, &payload_n), 0);
        CU_ASSERT_EQUAL(payload_n, 0);
        CU_ASSERT_EQUAL(frame_read(&reader, &p, &n, &payload, &payload_n), FRAME_E_MORE);
        CU_ASSERT_EQUAL(n, 0);
        frame_reader_done(&reader);
}

static void test_byte_by_byte(void)
{
        uint8_t bytes[FRAME_HEADER_BYTES + 3000];
        struct frame_reader reader = {0};
        const uint8_t *payload = NULL;
        size_t payload_n = 0;

        memset(bytes, 'x', sizeof(bytes));
        frame_header(3000, bytes);
        for (size_t i = 0; i < sizeof(bytes); i++) {
                const uint8_t *p = bytes + i;
                size_t n = 1;
                int r = frame_read(&reader, &p, &n, &payload, &payload_n);

                CU_ASSERT_EQUAL(r, i + 1 < sizeof(bytes) ? FRAME_E_MORE : 0);
                CU_ASSERT_EQUAL(n, 0);
        }
        CU_ASSERT_EQUAL(payload_n, 3000);
        frame_reader_done(&reader);
}

static void test_too_large_is_refused_at_its_header(void)
{
        uint8_t header[FRAME_HEADER_BYTES];
        struct frame_reader reader = {0};
        const uint8_t *p = header, *payload;
        size_t n = sizeof(header), payload_n;

        frame_header(WB_FRAME_MAX_BYTES + 1, header);
        CU_ASSERT_EQUAL(frame_read(&reader, &p, &n, &payload, &payload_n), -EMSGSIZE);
        frame_reader_done(&reader);
}

/* A peer that announces the most and sends nothing must not make the reader allocate it. */
static void test_memory_follows_what_came(void)
{
        uint8_t bytes[FRAME_HEADER_BYTES + 10] = {0};
        struct frame_reader reader = {0};
        const uint8_t *p = bytes, *payload;
        size_t n = sizeof(bytes), payload_n;

        frame_header(WB_FRAME_MAX_BYTES, bytes);
        CU_ASSERT_EQUAL(frame_read(&reader, &p, &n, &payload, &payload_n), FRAME_E_MORE);
        CU_ASSERT(reader.room <= 4096);
        frame_reader_done(&reader);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"two frames in one read", test_two_frames_in_one_read},
                {"byte by byte", test_byte_by_byte},
                {"too large is refused at its header", test_too_large_is_refused_at_its_header},
                {"memory follows what came, not what was announced", test_memory_follows_what_came},
                CU_TEST_INFO_NULL,
        };

        return suite_run("frame", tests);
}
