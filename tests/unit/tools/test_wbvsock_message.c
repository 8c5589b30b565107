/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that come in: of the VMM (vhost-user), of the guest (packet headers), of the host (the CONNECT line). */
#include "tools/wbvsock/message.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <linux/virtio_vsock.h>
#include <string.h>

#include "tools/wbvsock/host.h"
#include "tools/wbvsock/packet.h"

static void test_headers(void)
{
        static const struct {
                struct message_header h;
                int error;
        } cases[] = {
                {{MESSAGE_GET_FEATURES, 0x1, 0}, 0},
                {{MESSAGE_GET_FEATURES, 0x9, 0}, 0},
                {{MESSAGE_GET_FEATURES, 0x0, 0}, -EPROTO},
                {{MESSAGE_GET_FEATURES, 0x2, 0}, -EPROTO},
                {{MESSAGE_GET_FEATURES, 0x5, 0}, -EPROTO},
                {{MESSAGE_GET_FEATURES, 0x11, 0}, -EPROTO},
                {{MESSAGE_GET_FEATURES, 0x1, MESSAGE_PAYLOAD_MAX}, 0},
                {{MESSAGE_GET_FEATURES, 0x1, MESSAGE_PAYLOAD_MAX + 1}, -EPROTO},
                {{MESSAGE_GET_FEATURES, 0x1, UINT32_MAX}, -EPROTO},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct message_header h;

                CU_ASSERT_EQUAL(message_header_parse((const uint8_t *)&cases[i].h, &h), cases[i].error);
        }
}

/* Requests with a payload of 32-bit words, which is long enough for all shapes but the memory table. */
static void test_payloads(void)
{
        static const struct {
                uint32_t request, size;
                uint32_t words[12];
                size_t fds_n;
                int error;
        } cases[] = {
                {MESSAGE_GET_FEATURES, 0, {0}, 0, 0},
                {MESSAGE_GET_FEATURES, 8, {0}, 0, -EPROTO},
                {MESSAGE_SET_OWNER, 0, {0}, 1, -EPROTO},
                {MESSAGE_SET_FEATURES, 8, {0}, 0, 0},
                {MESSAGE_SET_FEATURES, 4, {0}, 0, -EPROTO},
                {MESSAGE_SET_VRING_NUM, 8, {1, 128}, 0, 0},
                {MESSAGE_SET_VRING_NUM, 8, {2, 128}, 0, -EPROTO},
                {MESSAGE_SET_VRING_NUM, 12, {1, 128}, 0, -EPROTO},
                {MESSAGE_SET_VRING_ADDR, 40, {1, 0}, 0, 0},
                {MESSAGE_SET_VRING_ADDR, 40, {2, 0}, 0, -EPROTO},
                {MESSAGE_SET_VRING_ADDR, 40, {1, 1}, 0, -EOPNOTSUPP},
                {MESSAGE_SET_VRING_ADDR, 32, {1, 0}, 0, -EPROTO},
                {MESSAGE_SET_VRING_KICK, 8, {1, 0}, 1, 0},
                {MESSAGE_SET_VRING_KICK, 8, {1, 0}, 0, -EPROTO},
                {MESSAGE_SET_VRING_KICK, 8, {1, 0}, 2, -EPROTO},
                {MESSAGE_SET_VRING_KICK, 8, {0x101, 0}, 0, 0},
                {MESSAGE_SET_VRING_KICK, 8, {0x101, 0}, 1, -EPROTO},
                {MESSAGE_SET_VRING_CALL, 8, {0x201, 0}, 1, -EPROTO},
                {MESSAGE_SET_VRING_ERR, 8, {1, 1}, 1, -EPROTO},
                {MESSAGE_SET_VRING_ERR, 8, {2, 0}, 1, -EPROTO},
                {MESSAGE_GET_CONFIG, 20, {0, 8, 0}, 0, 0},
                {MESSAGE_GET_CONFIG, 20, {0, 9, 0}, 0, -EPROTO},
                {MESSAGE_GET_CONFIG, 8, {0, 8}, 0, -EPROTO},
                {MESSAGE_GET_CONFIG, 20, {0, UINT32_MAX - 3, 0}, 0, -EPROTO},
                {MESSAGE_SET_MEM_TABLE, 40, {1, 0}, 1, 0},
                {MESSAGE_SET_MEM_TABLE, 40, {1, 0}, 0, -EPROTO},
                {MESSAGE_SET_MEM_TABLE, 40, {2, 0}, 2, -EPROTO},
                {MESSAGE_SET_MEM_TABLE, 40, {0x08000001, 0}, 1, -EPROTO},
                {MESSAGE_SET_MEM_TABLE, 4, {0}, 0, -EPROTO},
                {0, 0, {0}, 0, -EOPNOTSUPP},
                {6, 0, {0}, 0, -EOPNOTSUPP},
                {25, 0, {0}, 0, -EOPNOTSUPP},
                {UINT32_MAX, 0, {0}, 0, -EOPNOTSUPP},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct message_header h = {cases[i].request, MESSAGE_FLAG_VERSION, cases[i].size};
                struct message m;
                int r = message_parse(&h, (const uint8_t *)cases[i].words, cases[i].fds_n, &m);

                if (r != cases[i].error)
                        printf("case %zu: %d\n", i, r);
                CU_ASSERT_EQUAL(r, cases[i].error);
        }
}

static void test_memory_table(void)
{
        struct message_mapping in[MEMORY_REGIONS_MAX] = {{1, 2, 3, 4}, {.offset = 5}};
        uint8_t payload[MESSAGE_PAYLOAD_MAX] = {MEMORY_REGIONS_MAX};
        struct message_header h = {
                MESSAGE_SET_MEM_TABLE, MESSAGE_FLAG_VERSION | MESSAGE_FLAG_NEED_REPLY, 8 + sizeof(in)};
        struct message m;

        memcpy(payload + 8, in, sizeof(in));
        CU_ASSERT_EQUAL_FATAL(message_parse(&h, payload, MEMORY_REGIONS_MAX, &m), 0);
        CU_ASSERT_EQUAL(m.memory.n, MEMORY_REGIONS_MAX);
        CU_ASSERT_EQUAL(m.memory.regions[0].guest_addr, 1);
        CU_ASSERT_EQUAL(m.memory.regions[0].size_bytes, 2);
        CU_ASSERT_EQUAL(m.memory.regions[0].user_addr, 3);
        CU_ASSERT_EQUAL(m.memory.regions[1].offset, 5);
        CU_ASSERT_NOT_EQUAL(m.need_reply, 0);
}

static void test_packets(void)
{
        struct packet p = {.src_cid = 3,
                              .dst_cid = 2,
                              .src_port = 4,
                              .dst_port = 5,
                              .len = 6,
                              .type = 1,
                              .op = VIRTIO_VSOCK_OP_RW,
                              .flags = 7,
                              .buf_alloc = 8,
                              .fwd_cnt = 9},
                      q, reset;
        uint8_t bytes[PACKET_HEADER_BYTES], again[PACKET_HEADER_BYTES];

        packet_encode(&p, bytes);
        CU_ASSERT_EQUAL(bytes[24], 6);
        packet_decode(bytes, &q);
        packet_encode(&q, again);
        CU_ASSERT_EQUAL(memcmp(bytes, again, sizeof(bytes)), 0);
        CU_ASSERT_EQUAL(q.fwd_cnt, 9);

        CU_ASSERT_EQUAL(packet_check(&p, 3, 6), 0);
        CU_ASSERT_EQUAL(packet_check(&p, 3, 5), PACKET_E_RESET);
        CU_ASSERT_EQUAL(packet_check(&p, 4, 6), PACKET_E_IGNORE);
        q.len = PACKET_PAYLOAD_MAX_BYTES + 1;
        CU_ASSERT_EQUAL(packet_check(&q, 3, SIZE_MAX), PACKET_E_RESET);
        q = p;
        q.dst_cid = 7;
        CU_ASSERT_EQUAL(packet_check(&q, 3, 6), PACKET_E_RESET);
        packet_reset(&q, &reset);
        CU_ASSERT_EQUAL(reset.src_cid, 7);
        CU_ASSERT_EQUAL(reset.dst_port, 4);
        q.op = VIRTIO_VSOCK_OP_RST;
        CU_ASSERT_EQUAL(packet_check(&q, 3, 6), PACKET_E_IGNORE);
        q = p;
        q.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
        CU_ASSERT_EQUAL(packet_check(&q, 3, 6), PACKET_E_RESET);
        q = p;
        q.op = 8;
        CU_ASSERT_EQUAL(packet_check(&q, 3, 6), PACKET_E_RESET);
        q.op = 0;
        CU_ASSERT_EQUAL(packet_check(&q, 3, 6), PACKET_E_RESET);
}

static void test_connect_lines(void)
{
        static const struct {
                const char *line;
                int error;
                uint32_t port;
        } cases[] = {
                {"CONNECT 1024\n", 0, 1024},
                {"CONNECT 0\n", 0, 0},
                {"CONNECT 4294967295\nrest", 0, UINT32_MAX},
                {"CONNECT 4294967296\n", -EINVAL, 0},
                {"", -EAGAIN, 0},
                {"CONN", -EAGAIN, 0},
                {"CONNECT 10", -EAGAIN, 0},
                {"CONNECT \n", -EINVAL, 0},
                {"CONNECT\n", -EINVAL, 0},
                {"C\n", -EINVAL, 0},
                {"connect 1\n", -EINVAL, 0},
                {"CONNECT  1\n", -EINVAL, 0},
                {"CONNECT 1 \n", -EINVAL, 0},
                {"CONNECT 1\r\n", -EINVAL, 0},
                {"CONNECT -1\n", -EINVAL, 0},
                {"CONNECT +1\n", -EINVAL, 0},
                {"CONNECT 00000000000000000000000000000000", -EINVAL, 0},
                {"GET / HTTP/1.1\r\n", -EINVAL, 0},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                uint32_t port = 0;
                size_t n = 0;
                int r = host_parse_line(cases[i].line, strlen(cases[i].line), &port, &n);

                if (r != cases[i].error)
                        printf("'%s': %d\n", cases[i].line, r);
                CU_ASSERT_EQUAL(r, cases[i].error);
                CU_ASSERT_EQUAL(port, cases[i].port);
                if (r == 0)
                        CU_ASSERT_EQUAL(cases[i].line[n - 1], '\n');
        }
        CU_ASSERT_EQUAL(host_parse_line("CONNECT 1\0\n", 11, &(uint32_t){0}, &(size_t){0}), -EINVAL);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"headers", test_headers},
                {"payloads", test_payloads},
                {"the memory table", test_memory_table},
                {"packets", test_packets},
                {"CONNECT lines", test_connect_lines},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"wbvsock messages", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
