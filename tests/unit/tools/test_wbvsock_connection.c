/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/connection.h"

#include <CUnit/Basic.h>
#include <linux/virtio_vsock.h>

#define BUFFER    1024u
#define SHUT_BOTH (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)

static struct packet from_guest(uint16_t op)
{
        return (struct packet){
                .src_cid = 3, .dst_cid = 2, .src_port = 5000, .dst_port = 1025, .type = 1, .op = op, .buf_alloc = 4096};
}

static enum connection_action receive(struct connection *c, uint16_t op)
{
        struct packet p = from_guest(op);

        return connection_receive(c, &p);
}

static enum connection_action receive_data(struct connection *c, uint32_t n)
{
        struct packet p = from_guest(VIRTIO_VSOCK_OP_RW);

        p.len = n;
        return connection_receive(c, &p);
}

static enum connection_action receive_shutdown(struct connection *c, uint32_t flags)
{
        struct packet p = from_guest(VIRTIO_VSOCK_OP_SHUTDOWN);

        p.flags = flags;
        return connection_receive(c, &p);
}

/* The op of the next packet for the guest, 0 if there is none. */
static uint16_t said(struct connection *c)
{
        struct packet p = {0};

        return connection_control(c, &p) ? p.op : 0;
}

static struct connection open_by_guest(void)
{
        struct packet request = from_guest(VIRTIO_VSOCK_OP_REQUEST);
        struct connection c;

        connection_init_guest(&c, &request, BUFFER);
        connection_dialed(&c);
        CU_ASSERT_EQUAL_FATAL(said(&c), VIRTIO_VSOCK_OP_RESPONSE);
        return c;
}

static void test_guest_opens(void)
{
        struct packet request = from_guest(VIRTIO_VSOCK_OP_REQUEST), p;
        struct connection c;

        connection_init_guest(&c, &request, BUFFER);
        CU_ASSERT_EQUAL(c.state, CONNECTION_DIALING);
        CU_ASSERT_FALSE(connection_has_control(&c));
        connection_dialed(&c);
        CU_ASSERT_EQUAL(c.state, CONNECTION_OPEN);
        CU_ASSERT_TRUE_FATAL(connection_control(&c, &p));
        CU_ASSERT_EQUAL(p.op, VIRTIO_VSOCK_OP_RESPONSE);
        CU_ASSERT_EQUAL(p.src_cid, 2);
        CU_ASSERT_EQUAL(p.src_port, 1025);
        CU_ASSERT_EQUAL(p.dst_port, 5000);
        CU_ASSERT_EQUAL(p.buf_alloc, BUFFER);
        CU_ASSERT_EQUAL(connection_credit(&c), 4096);
}

static void test_host_opens(void)
{
        struct connection c;

        connection_init_host(&c, 1024, 0x40000000, BUFFER);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_REQUEST);
        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_RESPONSE), CONNECTION_DO_ANSWER);
        CU_ASSERT_EQUAL(c.state, CONNECTION_OPEN);
        CU_ASSERT_EQUAL(connection_credit(&c), 4096);
        CU_ASSERT_FALSE(connection_has_control(&c));
}

static void test_guest_refuses(void)
{
        struct connection c;

        connection_init_host(&c, 1024, 0x40000000, BUFFER);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_REQUEST);
        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_RST), CONNECTION_DO_CLOSE);
        CU_ASSERT_EQUAL(c.state, CONNECTION_CLOSED);
        CU_ASSERT_EQUAL(said(&c), 0);
}

static void test_host_refuses(void)
{
        struct packet request = from_guest(VIRTIO_VSOCK_OP_REQUEST);
        struct connection c;

        connection_init_guest(&c, &request, BUFFER);
        connection_close(&c);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RST);
        CU_ASSERT_EQUAL(said(&c), 0);
}

/* A guest that was never asked has nothing to be reset. */
static void test_host_gives_up_before_the_request(void)
{
        struct connection c;

        connection_init_host(&c, 1024, 0x40000000, BUFFER);
        connection_host_closed(&c);
        CU_ASSERT_EQUAL(c.state, CONNECTION_CLOSED);
        CU_ASSERT_EQUAL(said(&c), 0);
}

/* An answer to a question that has not been put is a violation like any other packet out of place. */
static void test_packets_out_of_place(void)
{
        static const uint16_t when_open[] = {VIRTIO_VSOCK_OP_REQUEST, VIRTIO_VSOCK_OP_RESPONSE};
        static const uint16_t when_requested[] = {
                VIRTIO_VSOCK_OP_REQUEST, VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_CREDIT_UPDATE};
        struct packet request = from_guest(VIRTIO_VSOCK_OP_REQUEST);
        struct connection c;

        for (size_t i = 0; i < 2; i++) {
                c = open_by_guest();
                CU_ASSERT_EQUAL(receive(&c, when_open[i]), CONNECTION_DO_ABORT);
                CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RST);
        }
        for (size_t i = 0; i < 3; i++) {
                connection_init_host(&c, 1024, 0x40000000, BUFFER);
                CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_REQUEST);
                CU_ASSERT_EQUAL(receive(&c, when_requested[i]), CONNECTION_DO_ABORT);
        }
        connection_init_host(&c, 1024, 0x40000000, BUFFER);
        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_RESPONSE), CONNECTION_DO_ABORT);
        connection_init_guest(&c, &request, BUFFER);
        CU_ASSERT_EQUAL(receive_data(&c, 1), CONNECTION_DO_ABORT);
}

static void test_guest_may_not_exceed_its_credit(void)
{
        struct connection c = open_by_guest();

        CU_ASSERT_EQUAL(receive_data(&c, BUFFER), CONNECTION_DO_DATA);
        connection_forwarded(&c, 100);
        CU_ASSERT_EQUAL(receive_data(&c, 100), CONNECTION_DO_DATA);
        CU_ASSERT_EQUAL(receive_data(&c, 1), CONNECTION_DO_ABORT);
        CU_ASSERT_EQUAL(c.state, CONNECTION_CLOSED);
}

static void test_guest_is_told_of_room_in_time_and_not_too_often(void)
{
        struct connection c = open_by_guest();
        struct packet p;

        CU_ASSERT_EQUAL(receive_data(&c, BUFFER / 2 - 1), CONNECTION_DO_DATA);
        connection_forwarded(&c, BUFFER / 2 - 1);
        CU_ASSERT_EQUAL(said(&c), 0); /* it still thinks more than half free */
        CU_ASSERT_EQUAL(receive_data(&c, 300), CONNECTION_DO_DATA);
        connection_forwarded(&c, 1);
        CU_ASSERT_TRUE_FATAL(connection_control(&c, &p));
        CU_ASSERT_EQUAL(p.op, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        CU_ASSERT_EQUAL(p.fwd_cnt, BUFFER / 2);
        connection_forwarded(&c, 299);
        CU_ASSERT_EQUAL(said(&c), 0);
}

/* Whatever the guest does, one that waits with no credit gets some as soon as the host has taken its bytes. */
static void test_a_full_buffer_always_ends_in_an_update(void)
{
        for (uint32_t step = 1; step <= BUFFER; step++) {
                struct connection c = open_by_guest();
                bool told = false;

                CU_ASSERT_EQUAL_FATAL(receive_data(&c, BUFFER), CONNECTION_DO_DATA);
                for (uint32_t left = BUFFER, n; left && !told; left -= n) {
                        n = step < left ? step : left;
                        connection_forwarded(&c, n);
                        told = said(&c) == VIRTIO_VSOCK_OP_CREDIT_UPDATE;
                }
                CU_ASSERT_TRUE_FATAL(told);
        }
}

/* Linux sends on credit no more than its own buffer holds, which a program may have made small. */
static void test_a_guest_with_a_small_buffer_is_told_too(void)
{
        struct connection c = open_by_guest();
        struct packet p = from_guest(VIRTIO_VSOCK_OP_RW);

        p.buf_alloc = 64;
        p.len = 64;
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_DATA);
        connection_forwarded(&c, 64);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        p.buf_alloc = 0;
        p.len = 1;
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_DATA);
        connection_forwarded(&c, 0);
        CU_ASSERT_EQUAL(said(&c), 0);
        connection_forwarded(&c, 1);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
}

static void test_credit_of_the_guest(void)
{
        struct connection c = open_by_guest();
        struct packet p;

        connection_data(&c, 4000, &p);
        CU_ASSERT_EQUAL(p.op, VIRTIO_VSOCK_OP_RW);
        CU_ASSERT_EQUAL(p.len, 4000);
        CU_ASSERT_EQUAL(connection_credit(&c), 96);
        connection_data(&c, 96, &p);
        CU_ASSERT_EQUAL(connection_credit(&c), 0);
        CU_ASSERT_EQUAL(connection_credit(&c), 0);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_CREDIT_REQUEST);
        CU_ASSERT_EQUAL(said(&c), 0); /* asked once */

        p = from_guest(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        p.fwd_cnt = 1000;
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(connection_credit(&c), 1000);
        p.fwd_cnt = 0xfffffff0; /* more than was sent: its own loss */
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(connection_credit(&c), 0);
        p.fwd_cnt = 4096;
        p.buf_alloc = 0;
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(connection_credit(&c), 0);
}

static void test_counters_wrap(void)
{
        struct connection c = open_by_guest();
        struct packet p;

        c.sent = c.peer_forwarded = UINT32_MAX - 10;
        c.received = c.forwarded = c.told_forwarded = UINT32_MAX - 10;
        connection_data(&c, 100, &p);
        CU_ASSERT_EQUAL(connection_credit(&c), 3996);
        p = from_guest(VIRTIO_VSOCK_OP_RW);
        p.len = BUFFER;
        p.fwd_cnt = 89;
        CU_ASSERT_EQUAL(connection_receive(&c, &p), CONNECTION_DO_DATA);
        CU_ASSERT_EQUAL(connection_credit(&c), 4096);
        connection_forwarded(&c, BUFFER);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        CU_ASSERT_EQUAL(receive_data(&c, BUFFER), CONNECTION_DO_DATA);
}

static void test_credit_request_is_answered(void)
{
        struct connection c = open_by_guest();

        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_CREDIT_REQUEST), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
}

static void test_guest_half_close(void)
{
        struct connection c = open_by_guest();

        CU_ASSERT_EQUAL(receive_shutdown(&c, VIRTIO_VSOCK_SHUTDOWN_SEND), CONNECTION_DO_SHUT);
        CU_ASSERT_EQUAL(c.state, CONNECTION_OPEN);
        CU_ASSERT_TRUE(connection_may_send(&c));
        CU_ASSERT_EQUAL(receive_data(&c, 1), CONNECTION_DO_ABORT);

        c = open_by_guest();
        CU_ASSERT_EQUAL(receive_shutdown(&c, VIRTIO_VSOCK_SHUTDOWN_RCV), CONNECTION_DO_SHUT);
        CU_ASSERT_FALSE(connection_may_send(&c));
        CU_ASSERT_EQUAL(receive_data(&c, 1), CONNECTION_DO_DATA);
        CU_ASSERT_EQUAL(receive_shutdown(&c, VIRTIO_VSOCK_SHUTDOWN_SEND), CONNECTION_DO_CLOSE);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RST);
}

static void test_host_half_close(void)
{
        struct connection c = open_by_guest();
        struct packet p;

        connection_host_shut(&c, VIRTIO_VSOCK_SHUTDOWN_SEND);
        connection_host_shut(&c, VIRTIO_VSOCK_SHUTDOWN_SEND);
        CU_ASSERT_FALSE(connection_may_send(&c));
        CU_ASSERT_TRUE_FATAL(connection_control(&c, &p));
        CU_ASSERT_EQUAL(p.op, VIRTIO_VSOCK_OP_SHUTDOWN);
        CU_ASSERT_EQUAL(p.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
        CU_ASSERT_EQUAL(said(&c), 0);
        CU_ASSERT_EQUAL(receive_data(&c, 100), CONNECTION_DO_DATA);
        CU_ASSERT_EQUAL(c.state, CONNECTION_OPEN);
}

static void test_host_closes(void)
{
        struct connection c = open_by_guest();
        struct packet p;

        connection_host_closed(&c);
        CU_ASSERT_EQUAL(c.state, CONNECTION_ENDING);
        CU_ASSERT_TRUE_FATAL(connection_control(&c, &p));
        CU_ASSERT_EQUAL(p.op, VIRTIO_VSOCK_OP_SHUTDOWN);
        CU_ASSERT_EQUAL(p.flags, SHUT_BOTH);
        CU_ASSERT_EQUAL(receive_data(&c, 100), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_RST), CONNECTION_DO_CLOSE);
        CU_ASSERT_EQUAL(said(&c), 0);
}

/* Both have closed and neither saw the other: still one RST, ours. */
static void test_both_close_at_once(void)
{
        struct connection c = open_by_guest();

        connection_host_closed(&c);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_SHUTDOWN);
        CU_ASSERT_EQUAL(receive_shutdown(&c, SHUT_BOTH), CONNECTION_DO_CLOSE);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RST);
        CU_ASSERT_EQUAL(receive(&c, VIRTIO_VSOCK_OP_RST), CONNECTION_DO_NOTHING);
        CU_ASSERT_EQUAL(said(&c), 0);
}

/* RESPONSE comes before SHUTDOWN, and after a close nothing but the RST. */
static void test_order_of_what_is_said(void)
{
        struct packet request = from_guest(VIRTIO_VSOCK_OP_REQUEST);
        struct connection c;

        connection_init_guest(&c, &request, BUFFER);
        connection_dialed(&c);
        connection_host_closed(&c);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RESPONSE);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_SHUTDOWN);
        connection_init_guest(&c, &request, BUFFER);
        connection_dialed(&c);
        connection_close(&c);
        CU_ASSERT_EQUAL(said(&c), VIRTIO_VSOCK_OP_RST);
        CU_ASSERT_EQUAL(said(&c), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the guest opens", test_guest_opens},
                {"the host opens", test_host_opens},
                {"the guest refuses", test_guest_refuses},
                {"the host refuses", test_host_refuses},
                {"the host gives up before the request", test_host_gives_up_before_the_request},
                {"packets out of place", test_packets_out_of_place},
                {"the guest may not exceed its credit", test_guest_may_not_exceed_its_credit},
                {"the guest is told of room in time and not too often",
                        test_guest_is_told_of_room_in_time_and_not_too_often},
                {"a full buffer always ends in an update", test_a_full_buffer_always_ends_in_an_update},
                {"a guest with a small buffer is told too", test_a_guest_with_a_small_buffer_is_told_too},
                {"credit of the guest", test_credit_of_the_guest},
                {"counters wrap", test_counters_wrap},
                {"a credit request is answered", test_credit_request_is_answered},
                {"the guest's half-close", test_guest_half_close},
                {"the host's half-close", test_host_half_close},
                {"the host closes", test_host_closes},
                {"both close at once", test_both_close_at_once},
                {"the order of what is said", test_order_of_what_is_said},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"wbvsock connection", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
