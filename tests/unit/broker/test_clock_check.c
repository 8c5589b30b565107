/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/clock_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/registry.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"
#include "tests/support/suite.h"

/* A VM whose agent is this test. */
struct world {
        char dir[64];
        struct registry registry;
        struct vm_entry entry;
        int listener;
        int agent; /* the agent's end */
};

static void turn(struct world *w)
{
        for (int i = 0; i < 20; i++) {
                (void)event_base_loop(w->registry.base, EVLOOP_NONBLOCK);
                (void)usleep(1000);
        }
}

static void world_start(struct world *w)
{
        const struct transport t = {.kind = TRANSPORT_UNIX, .path = w->dir};
        char name[] = "demo";

        *w = (struct world){.dir = "/tmp/wb-test-clock-XXXXXX", .agent = -1};
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->dir));
        w->registry.base = event_base_new();
        w->entry.registry = &w->registry;
        w->entry.config.name = strdup(name);
        w->entry.config.transport = TRANSPORT_UNIX;
        w->entry.config.path = w->dir;
        CU_ASSERT_EQUAL_FATAL(transport_listen_guest(&t, WB_PORT_CONTROL, &w->listener), 0);
}

static void world_stop(struct world *w)
{
        char path[96];

        clock_check_cancel(&w->entry);
        close_fd(w->agent);
        close_fd(w->listener);
        (void)snprintf(path, sizeof(path), "%s/1024", w->dir);
        (void)unlink(path);
        (void)rmdir(w->dir);
        free(w->entry.config.name);
        event_base_free(w->registry.base);
}

/* Up to the question. */
static void start_check(struct world *w)
{
        uint8_t bytes[64];
        ssize_t n;

        clock_check_start(&w->entry);
        CU_ASSERT_PTR_NOT_NULL_FATAL(w->entry.clock_check);
        turn(w);
        w->agent = accept(w->listener, NULL, NULL);
        CU_ASSERT_FATAL(w->agent >= 0);
        turn(w);
        n = recv(w->agent, bytes, sizeof(bytes), MSG_DONTWAIT);
        CU_ASSERT_FATAL(n > 4);
        Wb__ToAgent *m = NULL;
        CU_ASSERT_EQUAL_FATAL(codec_unpack_to_agent(bytes + 4, (size_t)n - 4, &m), 0);
        CU_ASSERT_EQUAL(m->body_case, WB__TO_AGENT__BODY_CLOCK_CHECK);
        codec_free_to_agent(m);
}

static void say(struct world *w, const Wb__FromAgent *m)
{
        uint8_t *frame;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(codec_pack_from_agent(m, &frame, &n), 0);
        CU_ASSERT_EQUAL(write(w->agent, frame, n), (ssize_t)n);
        free(frame);
        turn(w);
}

static void test_probes_are_answered_with_the_hosts_time(void)
{
        Wb__ClockProbe probe = WB__CLOCK_PROBE__INIT;
        Wb__ClockReport report = WB__CLOCK_REPORT__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ToAgent *answer = NULL;
        uint8_t bytes[64];
        struct world w;
        ssize_t n;

        world_start(&w);
        start_check(&w);
        clock_check_start(&w.entry); /* one at a time */
        probe.cookie = 77;
        m.body_case = WB__FROM_AGENT__BODY_CLOCK_PROBE;
        m.clock_probe = &probe;
        say(&w, &m);
        n = recv(w.agent, bytes, sizeof(bytes), MSG_DONTWAIT);
        CU_ASSERT_FATAL(n > 4);
        CU_ASSERT_EQUAL_FATAL(codec_unpack_to_agent(bytes + 4, (size_t)n - 4, &answer), 0);
        CU_ASSERT_EQUAL_FATAL(answer->body_case, WB__TO_AGENT__BODY_CLOCK_SAMPLE);
        CU_ASSERT_EQUAL(answer->clock_sample->cookie, 77);
        CU_ASSERT_TRUE(clock_realtime_ns() - answer->clock_sample->realtime_ns < 10 * NSEC_PER_SEC);
        codec_free_to_agent(answer);
        m.body_case = WB__FROM_AGENT__BODY_CLOCK_REPORT;
        report.action = (char *)(uintptr_t) "slewed";
        m.clock_report = &report;
        say(&w, &m);
        CU_ASSERT_PTR_NULL(w.entry.clock_check);
        CU_ASSERT_EQUAL(recv(w.agent, bytes, sizeof(bytes), MSG_DONTWAIT), 0); /* and the conversation is over */
        world_stop(&w);
}

static void test_an_agent_that_says_something_else(void)
{
        Wb__Ok ok = WB__OK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        struct world w;

        world_start(&w);
        start_check(&w);
        m.body_case = WB__FROM_AGENT__BODY_OK;
        m.ok = &ok;
        say(&w, &m);
        CU_ASSERT_PTR_NULL(w.entry.clock_check);
        world_stop(&w);
}

static void test_an_agent_that_goes_away_and_a_vm_that_does(void)
{
        struct world w;

        world_start(&w);
        start_check(&w);
        w.agent = close_fd(w.agent);
        turn(&w);
        CU_ASSERT_PTR_NULL(w.entry.clock_check);
        clock_check_cancel(&w.entry);
        start_check(&w);
        clock_check_cancel(&w.entry);
        CU_ASSERT_PTR_NULL(w.entry.clock_check);
        turn(&w);
        world_stop(&w);
}

/* Has the keeper begun a check of it by the end of its period? The check is cancelled. */
static bool is_checked(struct world *w, struct vm_entry *e)
{
        bool is_there = false;

        for (int i = 0; i < 75 && !is_there; i++) {
                turn(w);
                is_there = e->clock_check != NULL;
        }
        clock_check_cancel(e);
        return is_there;
}

static void test_the_keeper_asks_open_vms_each_period(void)
{
        struct clock_keeper *keeper;
        char name[] = "other", path[96];
        struct vm_entry other = {0};
        struct world w;

        world_start(&w);
        (void)snprintf(path, sizeof(path), "%s/nobody", w.dir);
        other.registry = &w.registry;
        other.config = (struct config_vm){.name = name, .transport = TRANSPORT_HYBRID, .path = path, .agent = true};
        other.state = VM_OPEN;
        w.entry.config.agent = true; /* but over unix: its clock is the host's */
        w.entry.state = VM_OPEN;
        TAILQ_INIT(&w.registry.vms);
        TAILQ_INSERT_TAIL(&w.registry.vms, &w.entry, link);
        TAILQ_INSERT_TAIL(&w.registry.vms, &other, link);
        w.registry.clock_check_s = 1;
        CU_ASSERT_EQUAL_FATAL(clock_keeper_new(&w.registry, &keeper), 0);
        CU_ASSERT_TRUE(is_checked(&w, &other));
        CU_ASSERT_TRUE(is_checked(&w, &other)); /* again */
        CU_ASSERT_PTR_NULL(w.entry.clock_check);
        other.state = VM_QUIESCED;
        CU_ASSERT_FALSE(is_checked(&w, &other));
        clock_keeper_free(keeper);
        world_stop(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"probes are answered with the host's time", test_probes_are_answered_with_the_hosts_time},
                {"an agent that says something else", test_an_agent_that_says_something_else},
                {"an agent that goes away, and a VM that does", test_an_agent_that_goes_away_and_a_vm_that_does},
                {"the keeper asks open VMs each period", test_the_keeper_asks_open_vms_each_period},
                CU_TEST_INFO_NULL,
        };

        return suite_run("clock_check", tests);
}
