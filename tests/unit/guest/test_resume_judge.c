/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/resume_judge.h"

#include <errno.h>

#include "tests/support/suite.h"

/* Each source in each state of the gate, without VMClock. */
static void test_without_vmclock(void)
{
        static const struct {
                enum gate_state gate;
                bool stands_still;
                bool believed[RESUME_SOURCES];
        } rows[] = {
                {GATE_OPEN, false,
                        {[RESUME_GENERATION] = true,
                                [RESUME_TRANSPORT] = true,
                                [RESUME_DEVICE] = true,
                                [RESUME_CID] = true}},
                {GATE_ACTIVATING, false, {[RESUME_DEVICE] = true, [RESUME_CID] = true}},
                {GATE_CLOSED, false,
                        {[RESUME_GENERATION] = true,
                                [RESUME_TRANSPORT] = true,
                                [RESUME_DEVICE] = true,
                                [RESUME_CID] = true}},
                {GATE_CLOSED, true, {[RESUME_CID] = true}},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                for (enum resume_source s = 0; s < RESUME_SOURCES; s++) {
                        struct resume_view view = {.gate = rows[i].gate, .stands_still = rows[i].stands_still};

                        CU_ASSERT_EQUAL(resume_is_true(s, &view), rows[i].believed[s]);
                }
}

/* It is there before anything runs: whatever another source says, it has said already. */
static void test_vmclock_decides_alone(void)
{
        for (enum gate_state gate = GATE_CLOSED; gate <= GATE_OPEN; gate++)
                for (enum resume_source s = 0; s < RESUME_SOURCES; s++)
                        for (int bits = 0; bits < 4; bits++) {
                                struct resume_view view = {.gate = gate,
                                        .has_vmclock = true,
                                        .vmclock_changed = bits & 1,
                                        .stands_still = bits & 2};

                                CU_ASSERT_EQUAL(resume_is_true(s, &view), view.vmclock_changed);
                        }
}

static void test_what_is_done_without_a_host(void)
{
        for (enum host_gone asked = HOST_GONE_AUTO; asked <= HOST_GONE_STAY; asked++) {
                bool is_auto = asked == HOST_GONE_AUTO;

                CU_ASSERT_EQUAL(host_gone_action(asked, STANDSTILL_NONE), HOST_GONE_STAY);
                CU_ASSERT_EQUAL(host_gone_action(asked, STANDSTILL_QUIESCED), is_auto ? HOST_GONE_THAW : asked);
                CU_ASSERT_EQUAL(host_gone_action(asked, STANDSTILL_RESUMED), is_auto ? HOST_GONE_POWER_OFF : asked);
        }
}

static void test_words(void)
{
        enum host_gone what = HOST_GONE_STAY;

        for (enum host_gone i = HOST_GONE_AUTO; i <= HOST_GONE_STAY; i++) {
                CU_ASSERT_EQUAL(host_gone_parse(host_gone_name(i), &what), 0);
                CU_ASSERT_EQUAL(what, i);
        }
        CU_ASSERT_EQUAL(host_gone_parse("", &what), -EINVAL);
        CU_ASSERT_EQUAL(host_gone_parse("Thaw", &what), -EINVAL);
        for (enum resume_source s = 0; s < RESUME_SOURCES; s++)
                CU_ASSERT_PTR_NOT_NULL(resume_source_name(s));
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"without VMClock", test_without_vmclock},
                {"VMClock decides alone", test_vmclock_decides_alone},
                {"what is done without a host", test_what_is_done_without_a_host},
                {"words", test_words},
                CU_TEST_INFO_NULL,
        };

        return suite_run("resume_judge", tests);
}
