/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/gate.h"

#include "tests/support/suite.h"

static void test_only_an_activation_opens(void)
{
        struct gate gate = {0};

        CU_ASSERT_FALSE(gate_is_open(&gate));
        gate_set(&gate, GATE_ACTIVATING);
        CU_ASSERT_FALSE(gate_is_open(&gate));
        gate_set(&gate, GATE_OPEN);
        CU_ASSERT_TRUE(gate_is_open(&gate));
}

static void test_it_closes_from_anywhere(void)
{
        for (enum gate_state from = GATE_CLOSED; from <= GATE_OPEN; from++) {
                struct gate gate = {.state = from};

                gate_set(&gate, GATE_CLOSED);
                CU_ASSERT_FALSE(gate_is_open(&gate));
        }
}

static void test_every_state_has_a_name(void)
{
        CU_ASSERT_STRING_EQUAL(gate_state_name(GATE_CLOSED), "closed");
        CU_ASSERT_STRING_EQUAL(gate_state_name(GATE_ACTIVATING), "activating");
        CU_ASSERT_STRING_EQUAL(gate_state_name(GATE_OPEN), "open");
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"only an activation opens", test_only_an_activation_opens},
                {"it closes from anywhere", test_it_closes_from_anywhere},
                {"every state has a name", test_every_state_has_a_name},
                CU_TEST_INFO_NULL,
        };

        return suite_run("gate", tests);
}
