/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/texts.h"

#include <stdlib.h>
#include <string.h>

#include "proto/wire/limits.h"
#include "tests/support/suite.h"

static ProtobufCBinaryData text_of(const char *text)
{
        return (ProtobufCBinaryData){.len = strlen(text), .data = *text ? (uint8_t *)(uintptr_t)text : NULL};
}

static void test_texts_stand_in_their_order(void)
{
        const char *const words[] = {"a", "", "a longer one", ""};
        ProtobufCBinaryData list[4];
        struct texts t = {0};
        size_t n = 0;

        CU_ASSERT_PTR_NULL(texts_first(&t));
        for (size_t i = 0; i < 4; i++)
                list[i] = text_of(words[i]);
        CU_ASSERT_EQUAL(texts_cost(list, 4), 13 + 4 * WB_ARG_COST_BYTES);
        CU_ASSERT_EQUAL(texts_add(&t, list, 3), 0);
        CU_ASSERT_EQUAL(texts_add(&t, list + 3, 0), 0);
        CU_ASSERT_EQUAL(texts_add(&t, list + 3, 1), 0);
        for (const char *text = texts_first(&t); text; text = texts_next(&t, text))
                CU_ASSERT_STRING_EQUAL(text, words[n++]);
        CU_ASSERT_EQUAL(n, 4);
        CU_ASSERT_EQUAL(t.n, 4);
        CU_ASSERT_EQUAL(t.used, 13 + 4);
        texts_done(&t);
        CU_ASSERT_PTR_NULL(texts_first(&t));
}

/* Added one by one it grows by doubling, and holds no more than twice what is in it. */
static void test_many_are_added_one_by_one(void)
{
        ProtobufCBinaryData word = text_of("word");
        struct texts t = {0};
        size_t n = 0, grown = 0, room = 0;

        for (int i = 0; i < 10000; i++) {
                CU_ASSERT_EQUAL_FATAL(texts_add(&t, &word, 1), 0);
                grown += t.room != room;
                room = t.room;
        }
        CU_ASSERT_TRUE(t.room < 2 * t.used && grown < 20);
        for (const char *text = texts_first(&t); text; text = texts_next(&t, text))
                n += strcmp(text, "word") == 0;
        CU_ASSERT_EQUAL(n, 10000);
        texts_done(&t);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"texts stand in their order", test_texts_stand_in_their_order},
                {"many are added one by one", test_many_are_added_one_by_one},
                CU_TEST_INFO_NULL,
        };

        return suite_run("texts", tests);
}
