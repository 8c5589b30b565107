/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/virtqueue.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <linux/virtio_ring.h>
#include <string.h>

#define SIZE      8u
#define USER      UINT64_C(0x7f0000000000)
#define GUEST     UINT64_C(0x100000)
#define RAM_BYTES (64u * 1024u)
#define DESC_AT   0x0u
#define AVAIL_AT  0x400u
#define USED_AT   0x800u
#define TABLE_AT  0x1000u /* an indirect table */
#define DATA_AT   0x2000u

/* A guest whose memory is an array, and a driver that writes what it likes. */
struct guest {
        _Alignas(16) uint8_t ram[RAM_BYTES];
        uint8_t far[4096]; /* a second region, right behind the first */
        struct memory memory;
        struct virtqueue q;
        struct virtqueue_chain chain;
};

static struct guest g;

static struct virtqueue_setup setup_of(void)
{
        return (struct virtqueue_setup){
                .size = SIZE,
                .desc_addr = USER + DESC_AT,
                .avail_addr = USER + AVAIL_AT,
                .used_addr = USER + USED_AT,
                .event_idx = true,
                .indirect = true,
        };
}

static void begin(const struct virtqueue_setup *setup)
{
        memset(&g, 0, sizeof(g));
        CU_ASSERT_EQUAL_FATAL(memory_add(&g.memory, &(struct memory_region){GUEST, USER, RAM_BYTES, g.ram}), 0);
        CU_ASSERT_EQUAL_FATAL(
                memory_add(&g.memory, &(struct memory_region){GUEST + RAM_BYTES, USER + 0x10000000, 4096, g.far}), 0);
        CU_ASSERT_EQUAL_FATAL(virtqueue_init(&g.q, &g.memory, setup), 0);
}

static struct vring_desc *desc(unsigned at, unsigned i)
{
        return (struct vring_desc *)(void *)&g.ram[at] + i;
}

static struct vring_avail *avail(void)
{
        return (struct vring_avail *)(void *)&g.ram[AVAIL_AT];
}

static struct vring_used *used(void)
{
        return (struct vring_used *)(void *)&g.ram[USED_AT];
}

static void put(unsigned i, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
        *desc(DESC_AT, i) = (struct vring_desc){.addr = addr, .len = len, .flags = flags, .next = next};
}

static void offer(uint16_t head)
{
        avail()->ring[avail()->idx % SIZE] = head;
        avail()->idx++;
}

static int peek(void)
{
        return virtqueue_peek(&g.q, 0, &g.chain);
}

static void test_a_chain_is_found(void)
{
        struct virtqueue_setup s = setup_of();

        begin(&s);
        CU_ASSERT_EQUAL(peek(), VIRTQUEUE_E_EMPTY);
        put(3, GUEST + DATA_AT, 44, VRING_DESC_F_NEXT, 5);
        put(5, GUEST + DATA_AT + 100, 0, VRING_DESC_F_NEXT, 0);
        put(0, GUEST + DATA_AT + 200, 10, VRING_DESC_F_WRITE, 0);
        offer(3);
        CU_ASSERT_EQUAL_FATAL(peek(), 0);
        CU_ASSERT_EQUAL(g.chain.head, 3);
        CU_ASSERT_EQUAL(g.chain.iov_n, 2);
        CU_ASSERT_EQUAL(g.chain.readable_n, 1);
        CU_ASSERT_EQUAL(g.chain.readable_bytes, 44);
        CU_ASSERT_EQUAL(g.chain.writable_bytes, 10);
        CU_ASSERT_PTR_EQUAL(g.chain.iov[1].iov_base, &g.ram[DATA_AT + 200]);
}

static void test_a_segment_over_two_regions(void)
{
        struct virtqueue_setup s = setup_of();

        begin(&s);
        put(0, GUEST + RAM_BYTES - 10, 30, 0, 0);
        offer(0);
        CU_ASSERT_EQUAL_FATAL(peek(), 0);
        CU_ASSERT_EQUAL_FATAL(g.chain.iov_n, 2);
        CU_ASSERT_EQUAL(g.chain.iov[0].iov_len, 10);
        CU_ASSERT_PTR_EQUAL(g.chain.iov[1].iov_base, g.far);
        CU_ASSERT_EQUAL(g.chain.iov[1].iov_len, 20);
}

static void test_indirect(void)
{
        struct virtqueue_setup s = setup_of();

        begin(&s);
        put(1, GUEST + TABLE_AT, 32, VRING_DESC_F_INDIRECT, 0);
        *desc(TABLE_AT, 0) = (struct vring_desc){GUEST + DATA_AT, 44, VRING_DESC_F_NEXT, 1};
        *desc(TABLE_AT, 1) = (struct vring_desc){GUEST + DATA_AT + 50, 6, 0, 0};
        offer(1);
        CU_ASSERT_EQUAL_FATAL(peek(), 0);
        CU_ASSERT_EQUAL(g.chain.readable_bytes, 50);
        CU_ASSERT_EQUAL(g.chain.head, 1);
}

/* What a hostile driver may write; each breaks the queue, and it stays broken. */
static void test_bad_chains_break_the_queue(void)
{
        static const struct {
                const char *what;
                struct vring_desc first, second, inner;
                uint16_t head;
        } cases[] = {
                {"head beyond the table", {0}, {0}, {0}, SIZE},
                {"next beyond the table", {GUEST + DATA_AT, 1, VRING_DESC_F_NEXT, SIZE}, {0}, {0}, 0},
                {"a loop onto itself", {GUEST + DATA_AT, 1, VRING_DESC_F_NEXT, 0}, {0}, {0}, 0},
                {"a loop of two", {GUEST + DATA_AT, 0, VRING_DESC_F_NEXT, 1},
                        {GUEST + DATA_AT, 0, VRING_DESC_F_NEXT, 0}, {0}, 0},
                {"an address outside", {0x10, 1, 0, 0}, {0}, {0}, 0},
                {"a length that leaves memory", {GUEST + DATA_AT, UINT32_MAX, 0, 0}, {0}, {0}, 0},
                {"an address that wraps", {UINT64_MAX - 1, 16, 0, 0}, {0}, {0}, 0},
                {"readable behind writable", {GUEST + DATA_AT, 4, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1},
                        {GUEST + DATA_AT, 4, 0, 0}, {0}, 0},
                {"indirect and next", {GUEST + TABLE_AT, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 1},
                        {GUEST + DATA_AT, 4, 0, 0}, {GUEST + DATA_AT, 4, 0, 0}, 0},
                {"an indirect table of no length", {GUEST + TABLE_AT, 0, VRING_DESC_F_INDIRECT, 0}, {0}, {0}, 0},
                {"an indirect table of half an entry", {GUEST + TABLE_AT, 24, VRING_DESC_F_INDIRECT, 0}, {0},
                        {GUEST + DATA_AT, 4, 0, 0}, 0},
                {"an indirect table longer than the queue",
                        {GUEST + TABLE_AT, (SIZE + 1) * 16, VRING_DESC_F_INDIRECT, 0}, {0}, {GUEST + DATA_AT, 4, 0, 0},
                        0},
                {"an indirect table outside", {8, 16, VRING_DESC_F_INDIRECT, 0}, {0}, {0}, 0},
                {"an indirect table over two regions", {GUEST + RAM_BYTES - 16, 32, VRING_DESC_F_INDIRECT, 0}, {0}, {0},
                        0},
                {"indirect in indirect", {GUEST + TABLE_AT, 16, VRING_DESC_F_INDIRECT, 0}, {0},
                        {GUEST + TABLE_AT, 16, VRING_DESC_F_INDIRECT, 0}, 0},
                {"a loop in an indirect table", {GUEST + TABLE_AT, 16, VRING_DESC_F_INDIRECT, 0}, {0},
                        {GUEST + DATA_AT, 4, VRING_DESC_F_NEXT, 0}, 0},
        };
        struct virtqueue_setup s = setup_of();

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                begin(&s);
                *desc(DESC_AT, 0) = cases[i].first;
                *desc(DESC_AT, 1) = cases[i].second;
                *desc(TABLE_AT, 0) = cases[i].inner;
                offer(cases[i].head);
                int r = peek();
                if (r != -EBADMSG)
                        printf("%s: %d\n", cases[i].what, r);
                CU_ASSERT_EQUAL(r, -EBADMSG);
                avail()->idx = 0;
                CU_ASSERT_EQUAL(peek(), -EBADMSG);
        }
}

static void test_indirect_needs_the_feature(void)
{
        struct virtqueue_setup s = setup_of();

        s.indirect = false;
        begin(&s);
        put(0, GUEST + TABLE_AT, 16, VRING_DESC_F_INDIRECT, 0);
        *desc(TABLE_AT, 0) = (struct vring_desc){GUEST + DATA_AT, 4, 0, 0};
        offer(0);
        CU_ASSERT_EQUAL(peek(), -EBADMSG);
}

static void test_more_available_than_the_queue_holds(void)
{
        struct virtqueue_setup s = setup_of();

        begin(&s);
        avail()->idx = SIZE + 1;
        CU_ASSERT_EQUAL(peek(), -EBADMSG);
        CU_ASSERT_FALSE(virtqueue_want_kick(&g.q));
}

static void test_too_many_segments(void)
{
        struct virtqueue_setup s = setup_of();

        s.size = 512;
        s.avail_addr = USER + 0x2000;
        s.used_addr = USER + 0x3000;
        begin(&s);
        for (uint16_t i = 0; i < 300; i++)
                put(i, GUEST + 0x8000, 1, VRING_DESC_F_NEXT, (uint16_t)(i + 1));
        put(300, GUEST + 0x8000, 1, 0, 0);
        *(uint16_t *)(void *)&g.ram[0x2002] = 1;
        CU_ASSERT_EQUAL(peek(), -EBADMSG);
}

static void test_setups_that_are_refused(void)
{
        struct virtqueue_setup good = setup_of(), s;
        struct virtqueue q;

        begin(&good);
        for (unsigned i = 0; i < 9; i++) {
                s = good;
                switch (i) {
                case 0: s.size = 0; break;
                case 1: s.size = 7; break;
                case 2: s.size = 65536; break;
                case 3: s.desc_addr += 8; break;
                case 4: s.avail_addr += 1; break;
                case 5: s.used_addr += 2; break;
                case 6: s.desc_addr = GUEST; break;
                case 7: s.used_addr = USER + RAM_BYTES - 4; break;
                case 8: s.avail_addr = UINT64_MAX - 1; break;
                }
                CU_ASSERT_EQUAL(virtqueue_init(&q, &g.memory, &s), -EINVAL);
        }
}

static void test_completion_and_indices_wrap(void)
{
        struct virtqueue_setup s = setup_of();

        s.base = 65534;
        begin(&s);
        g.q.next_used = 65534;
        avail()->idx = 65534;
        used()->idx = 65534;
        for (uint16_t i = 0; i < 4; i++) {
                put(i, GUEST + DATA_AT, 4, 0, 0);
                offer(i);
        }
        for (uint16_t i = 0; i < 4; i++) {
                CU_ASSERT_EQUAL_FATAL(peek(), 0);
                CU_ASSERT_EQUAL(g.chain.head, i);
                virtqueue_complete(&g.q, &g.chain, 100u + i);
        }
        CU_ASSERT_EQUAL(peek(), VIRTQUEUE_E_EMPTY);
        CU_ASSERT_EQUAL(used()->idx, 65534);
        CU_ASSERT_TRUE(virtqueue_publish(&g.q));
        CU_ASSERT_EQUAL(used()->idx, 2);
        CU_ASSERT_EQUAL(used()->ring[65535 % SIZE].id, 1);
        CU_ASSERT_EQUAL(used()->ring[1].len, 103);
}

static void complete_one(void)
{
        put(0, GUEST + DATA_AT, 4, 0, 0);
        offer(0);
        CU_ASSERT_EQUAL_FATAL(peek(), 0);
        virtqueue_complete(&g.q, &g.chain, 0);
}

static void test_interrupts_by_event_index(void)
{
        struct virtqueue_setup s = setup_of();

        begin(&s);
        complete_one();
        CU_ASSERT_TRUE(virtqueue_publish(&g.q)); /* the first is always told */
        CU_ASSERT_FALSE(virtqueue_publish(&g.q));
        avail()->ring[SIZE] = 2; /* used_event: when the third is there */
        complete_one();
        CU_ASSERT_FALSE(virtqueue_publish(&g.q));
        complete_one();
        CU_ASSERT_TRUE(virtqueue_publish(&g.q));
        complete_one();
        CU_ASSERT_FALSE(virtqueue_publish(&g.q));
}

static void test_interrupts_by_flag(void)
{
        struct virtqueue_setup s = setup_of();

        s.event_idx = false;
        begin(&s);
        complete_one();
        CU_ASSERT_TRUE(virtqueue_publish(&g.q));
        avail()->flags = VRING_AVAIL_F_NO_INTERRUPT;
        complete_one();
        CU_ASSERT_FALSE(virtqueue_publish(&g.q));
        virtqueue_ignore_kicks(&g.q);
        CU_ASSERT_EQUAL(used()->flags, VRING_USED_F_NO_NOTIFY);
        CU_ASSERT_FALSE(virtqueue_want_kick(&g.q));
        CU_ASSERT_EQUAL(used()->flags, 0);
        offer(0);
        CU_ASSERT_TRUE(virtqueue_want_kick(&g.q));
}

static void test_segments_are_cut_right(void)
{
        uint8_t a[3] = {1, 2, 3}, b[4] = {4, 5, 6, 7}, out[8] = {0};
        struct iovec iov[3] = {{a, 3}, {NULL, 0}, {b, 4}}, cut[3];

        CU_ASSERT_EQUAL(iov_read(iov, 3, 2, out, sizeof(out)), 5);
        CU_ASSERT_EQUAL(memcmp(out, (uint8_t[]){3, 4, 5, 6, 7}, 5), 0);
        CU_ASSERT_EQUAL(iov_read(iov, 3, 7, out, 1), 0);
        CU_ASSERT_EQUAL(iov_write(iov, 3, 1, "wxyz", 4), 4);
        CU_ASSERT_EQUAL(memcmp(a, (uint8_t[]){1, 'w', 'x'}, 3), 0);
        CU_ASSERT_EQUAL(b[1], 'z');
        CU_ASSERT_EQUAL(iov_slice(iov, 3, 1, 3, cut), 2);
        CU_ASSERT_PTR_EQUAL(cut[0].iov_base, a + 1);
        CU_ASSERT_EQUAL(cut[0].iov_len, 2);
        CU_ASSERT_EQUAL(cut[1].iov_len, 1);
        CU_ASSERT_EQUAL(iov_slice(iov, 3, 100, 3, cut), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a chain is found", test_a_chain_is_found},
                {"a segment over two regions", test_a_segment_over_two_regions},
                {"indirect descriptors", test_indirect},
                {"bad chains break the queue", test_bad_chains_break_the_queue},
                {"indirect needs the feature", test_indirect_needs_the_feature},
                {"more available than the queue holds", test_more_available_than_the_queue_holds},
                {"too many segments", test_too_many_segments},
                {"setups that are refused", test_setups_that_are_refused},
                {"completion, and indices that wrap", test_completion_and_indices_wrap},
                {"interrupts by event index", test_interrupts_by_event_index},
                {"interrupts by flag", test_interrupts_by_flag},
                {"segments are cut right", test_segments_are_cut_right},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"wbvsock virtqueue", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
