/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/name_budget.h"
#include "broker/policy_load.h"
#include "broker/worker.h"
#include "proto/base/io.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

#define POLICY                                                                                                         \
        "network: allowlist_domain\negress_rules:\n  - {pattern: \"*.example.org\"}\n  - {pattern: bad.example.org, "  \
        "action: deny}\n"

struct world {
        char dir[32];
        struct audit *audit;
        struct worker_settings *settings;
        struct worker *worker;
        struct policy *policy;
        struct vm *vm;
        int fd;
};

/* A connection as the shared vsock listener hands it on. */
static int connect_guest(struct world *w)
{
        int pair[2];

        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        CU_ASSERT_EQUAL_FATAL(worker_vsock_connection(w->worker, w->vm, WB_PORT_SERVICE, pair[0]), 0);
        return pair[1];
}

static void world_open(struct world *w, bool ready)
{
        struct audit_options options = {
                .rotate_bytes = 1 << 26, .sync = AUDIT_SYNC_NONE, .required = true, .notary_fd = -1};
        struct vm_config config = {.name = "one", .ready = ready};
        struct yaml_error error = {0};

        *w = (struct world){.dir = "/tmp/wb-service-XXXXXX"};
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->dir));
        options.dir = w->dir;
        CU_ASSERT_EQUAL_FATAL(audit_new(&options, &w->audit), 0);
        w->settings = calloc(1, sizeof(*w->settings));
        w->settings->refs = 1;
        w->settings->dns_servers = calloc(1, sizeof(*w->settings->dns_servers));
        w->settings->dns_servers_n = 1;
        (void)hostname_parse_address("127.0.0.1", 9, w->settings->dns_servers);
        w->settings->audit_required = true;
        CU_ASSERT_EQUAL_FATAL(worker_new(w->audit, w->settings, &w->worker), 0);
        CU_ASSERT_EQUAL_FATAL(policy_load("test", POLICY, strlen(POLICY), &w->policy, &error), 0);
        config.policy = w->policy;
        CU_ASSERT_EQUAL_FATAL(worker_vm_add(w->worker, &config, &w->vm), 0);
        w->fd = connect_guest(w);
}

static void world_close(struct world *w)
{
        char path[64];

        worker_free(w->worker);
        audit_free(w->audit);
        policy_unref(w->policy);
        worker_settings_unref(w->settings);
        close(w->fd);
        (void)snprintf(path, sizeof(path), "%s/audit.log", w->dir);
        CU_ASSERT_EQUAL(unlink(path), 0);
        (void)snprintf(path, sizeof(path), "rm -rf %s", w->dir);
        CU_ASSERT_EQUAL(system(path), 0);
}

static void ask(int fd, uint32_t number, const char *name)
{
        Wb__NameQuery query = WB__NAME_QUERY__INIT;
        Wb__ServiceRequest m = WB__SERVICE_REQUEST__INIT;
        uint8_t *frame;
        size_t n;

        query.name = (char *)(uintptr_t)name;
        query.qtype = 1;
        m.number = number;
        m.body_case = WB__SERVICE_REQUEST__BODY_NAME_QUERY;
        m.name_query = &query;
        CU_ASSERT_EQUAL_FATAL(codec_pack_service_request(&m, &frame, &n), 0);
        CU_ASSERT_EQUAL(io_write_full(fd, frame, n), 0);
        free(frame);
}

static int read_some(int fd, uint8_t *to, size_t n)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, 20000) == 1 ? (int)read(fd, to, n) : -1;
}

/* The reason of the next answer; "" if the conversation ended. Lives until the next call. */
static const char *hear(int fd, uint32_t number, bool *ret_helps)
{
        static char reason[WB_SERVICE_REASON_MAX + 1];
        uint8_t bytes[FRAME_HEADER_BYTES + WB_SERVICE_FRAME_MAX_BYTES];
        Wb__ServiceAnswer *m;
        size_t have = 0, want = FRAME_HEADER_BYTES;

        reason[0] = '\0';
        while (have < want) {
                int got = read_some(fd, bytes + have, want - have);

                if (got <= 0)
                        return reason;
                have += (size_t)got;
                if (have == FRAME_HEADER_BYTES)
                        want = FRAME_HEADER_BYTES + ((size_t)bytes[2] << 8 | bytes[3]);
        }
        CU_ASSERT_EQUAL_FATAL(
                codec_unpack_service_answer(bytes + FRAME_HEADER_BYTES, have - FRAME_HEADER_BYTES, &m), 0);
        CU_ASSERT_EQUAL(m->number, number);
        CU_ASSERT_EQUAL(m->name_answer->allowed, strcmp(m->name_answer->reason, "allowed") == 0);
        (void)snprintf(reason, sizeof(reason), "%s", m->name_answer->reason);
        if (ret_helps)
                *ret_helps = strstr(m->name_answer->detail, "pattern:") != NULL;
        codec_free_service_answer(m);
        return reason;
}

static void expect(int fd, const char *name, const char *reason)
{
        ask(fd, 7, name);
        CU_ASSERT_STRING_EQUAL(hear(fd, 7, NULL), reason);
}

static void test_policy_answers(void)
{
        struct world w;
        bool helps = false;

        world_open(&w, true);
        expect(w.fd, "a.example.org", "allowed");
        expect(w.fd, "A.Example.ORG.", "allowed");
        expect(w.fd, "bad.example.org", "deny_rule");
        expect(w.fd, "x.internal", "floor_name");
        expect(w.fd, "a b", "malformed_request");
        ask(w.fd, 9, "evil.com");
        CU_ASSERT_STRING_EQUAL(hear(w.fd, 9, &helps), "no_rule");
        CU_ASSERT_TRUE(helps);
        world_close(&w);
}

static void test_many_at_once_are_answered_in_order(void)
{
        struct world w;

        world_open(&w, true);
        for (uint32_t i = 0; i < 100; i++)
                ask(w.fd, i, "a.example.org");
        for (uint32_t i = 0; i < 100; i++)
                CU_ASSERT_STRING_EQUAL(hear(w.fd, i, NULL), "allowed");
        world_close(&w);
}

static void test_not_ready_and_revoked(void)
{
        struct world w;

        world_open(&w, false);
        expect(w.fd, "a.example.org", "not_ready");
        CU_ASSERT_EQUAL(worker_vm_set_ready(w.worker, w.vm, true, 1, NULL), 0);
        expect(w.fd, "a.example.org", "allowed");
        CU_ASSERT_EQUAL(worker_vm_revoke(w.worker, w.vm), 0);
        expect(w.fd, "a.example.org", "revoked");
        world_close(&w);
}

static void test_made_up_names_run_out(void)
{
        struct world w;
        char name[64];

        world_open(&w, true);
        for (unsigned i = 0; i < NAME_BUDGET_NAMES; i++) {
                (void)snprintf(name, sizeof(name), "secret-%u.example.org", i);
                expect(w.fd, name, "allowed");
        }
        expect(w.fd, "one-more.example.org", "rate_limited");
        expect(w.fd, "secret-1.example.org", "allowed");
        world_close(&w);
}

static void test_what_is_no_request_ends_it(void)
{
        static const uint8_t large[] = {0, 0, 0xff, 0xff}, empty[] = {0, 0, 0, 0}, junk[] = {0, 0, 0, 2, 0xff, 0xff};
        uint8_t zeros[WB_SERVICE_FRAME_MAX_BYTES + 64] = {0};
        struct world w;
        uint8_t byte;
        int fd;

        world_open(&w, true);
        CU_ASSERT_EQUAL(io_write_full(w.fd, empty, sizeof(empty)), 0);
        CU_ASSERT_EQUAL(read_some(w.fd, &byte, 1), 0);
        fd = connect_guest(&w);
        CU_ASSERT_EQUAL(io_write_full(fd, junk, sizeof(junk)), 0);
        CU_ASSERT_EQUAL(read_some(fd, &byte, 1), 0);
        close(fd);
        fd = connect_guest(&w);
        CU_ASSERT_EQUAL(io_write_full(fd, large, sizeof(large)), 0);
        (void)io_write_full(fd, zeros, sizeof(zeros));
        CU_ASSERT_TRUE(read_some(fd, &byte, 1) <= 0); /* or a reset: not all was read */
        close(fd);
        fd = connect_guest(&w); /* and no place is lost by it */
        expect(fd, "a.example.org", "allowed");
        close(fd);
        world_close(&w);
}

static void test_conversations_are_counted(void)
{
        struct world w;
        int more[8];
        uint8_t byte;

        world_open(&w, true);
        for (int i = 0; i < 8; i++)
                more[i] = connect_guest(&w);
        expect(more[0], "a.example.org", "allowed");
        CU_ASSERT_EQUAL(read_some(more[7], &byte, 1), 0);
        for (int i = 0; i < 8; i++)
                close(more[i]);
        world_close(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"policy answers", test_policy_answers},
                {"many at once are answered in order", test_many_at_once_are_answered_in_order},
                {"not ready and revoked", test_not_ready_and_revoked},
                {"made-up names run out", test_made_up_names_run_out},
                {"what is no request ends it", test_what_is_no_request_ends_it},
                {"conversations are counted", test_conversations_are_counted},
                CU_TEST_INFO_NULL,
        };

        return suite_run("service", tests);
}
