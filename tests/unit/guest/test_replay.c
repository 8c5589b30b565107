/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/replay.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/suite.h"

static uint8_t byte_at(uint64_t offset)
{
        return (uint8_t)(offset * 7 + (offset >> 8));
}

static void put(struct replay *r, size_t n)
{
        while (n) {
                uint8_t *to;
                size_t part;

                CU_ASSERT_EQUAL_FATAL(replay_space(r, n, &to, &part), 0);
                CU_ASSERT_FATAL(part > 0 && part <= n);
                for (size_t i = 0; i < part; i++)
                        to[i] = byte_at(r->end + i);
                replay_commit(r, part);
                n -= part;
        }
}

/* All that is held is what was put there. */
static bool is_whole(const struct replay *r)
{
        uint64_t at = r->start;

        while (at < r->end) {
                size_t n;
                const uint8_t *p = replay_at(r, at, &n);

                for (size_t i = 0; i < n; i++)
                        if (p[i] != byte_at(at + i))
                                return false;
                at += n;
        }
        return true;
}

static void test_memory_grows_with_what_came(void)
{
        struct replay r = {0};

        put(&r, 1);
        CU_ASSERT_EQUAL(r.room, 4096);
        put(&r, 4095);
        CU_ASSERT_EQUAL(r.room, 4096);
        put(&r, 1);
        CU_ASSERT_EQUAL(r.room, 8192);
        put(&r, REPLAY_MAX_BYTES * 3);
        CU_ASSERT_EQUAL(r.room, REPLAY_MAX_BYTES);
        replay_done(&r);
}

static void test_the_last_bytes_are_kept(void)
{
        struct replay r = {0};

        for (size_t n = 1; n < 3 * REPLAY_MAX_BYTES; n = n * 5 / 3 + 1) {
                put(&r, n);
                CU_ASSERT(is_whole(&r));
                CU_ASSERT(r.end - r.start >= (r.end < REPLAY_MAX_BYTES ? r.end : REPLAY_KEPT_BYTES));
        }
        replay_done(&r);
}

static void test_no_more_is_lost_than_asked_for(void)
{
        struct replay r = {0};
        uint8_t *to;
        size_t n;

        put(&r, REPLAY_MAX_BYTES);
        CU_ASSERT_EQUAL(r.start, 0);
        CU_ASSERT_EQUAL(replay_space(&r, 10, &to, &n), 0);
        CU_ASSERT_EQUAL(n, 10);
        CU_ASSERT_EQUAL(r.start, 10);
        replay_done(&r);
}

static void test_trimming_keeps_what_is_promised(void)
{
        static const size_t sizes[] = {
                0, 1, 4096, 4097, REPLAY_KEPT_BYTES, REPLAY_KEPT_BYTES + 1, 100000, REPLAY_MAX_BYTES + 5};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
                struct replay r = {0};
                uint64_t kept = sizes[i] < REPLAY_KEPT_BYTES ? sizes[i] : REPLAY_KEPT_BYTES;

                put(&r, sizes[i]);
                replay_trim(&r);
                CU_ASSERT_EQUAL(r.end, sizes[i]);
                CU_ASSERT_EQUAL(r.end - r.start, kept);
                CU_ASSERT(r.room <= REPLAY_KEPT_BYTES);
                CU_ASSERT(is_whole(&r));
                replay_trim(&r);
                CU_ASSERT(is_whole(&r));
                replay_done(&r);
        }
}

static void test_the_end_is_nothing(void)
{
        struct replay r = {0};
        size_t n = 1;

        CU_ASSERT_PTR_NULL(replay_at(&r, 0, &n));
        CU_ASSERT_EQUAL(n, 0);
        put(&r, 5000);
        CU_ASSERT_PTR_NULL(replay_at(&r, 5000, &n));
        CU_ASSERT_EQUAL(n, 0);
        replay_done(&r);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"memory grows with what came", test_memory_grows_with_what_came},
                {"the last bytes are kept", test_the_last_bytes_are_kept},
                {"no more is lost than asked for", test_no_more_is_lost_than_asked_for},
                {"trimming keeps what is promised", test_trimming_keeps_what_is_promised},
                {"the end is nothing", test_the_end_is_nothing},
                CU_TEST_INFO_NULL,
        };

        return suite_run("replay", tests);
}
