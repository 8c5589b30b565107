/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest before wbvsock's device: the first byte says how the rest is used.
 *   even: the rest is the guest's memory, rings and all, and the device is pumped over it;
 *   odd:  the rest is packets of a driver that keeps to the rings, eight bytes for each, so that connections come into
 * being. The host's side is a socket pair, on which something happens now and then.
 */
#include <assert.h>
#include <linux/virtio_ring.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/log.h"
#include "tools/wbvsock/device.h"
#include "tools/wbvsock/packet.h"

#define SIZE      16u
#define USER      UINT64_C(0x700000000000)
#define RAM_BYTES 32768u
#define QUEUE_AT  0x800u /* of a queue; each has so many bytes: descriptors, avail at 0x200, used at 0x400 */
#define DATA_AT   0x1000u
#define SLOT      512u
#define CID       3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct world {
        uint8_t ram[RAM_BYTES];
        struct memory memory;
        struct virtqueue queues[DEVICE_QUEUES];
        struct event_base *base;
        struct device *device;
        int host_fd;
};

static void nothing(enum device_queue which, void *arg)
{
        (void)which;
        (void)arg;
}

static void *part(struct world *w, unsigned queue, unsigned offset)
{
        return w->ram + queue * QUEUE_AT + offset;
}

static void begin(struct world *w)
{
        struct memory_region r = {.guest_addr = 0, .user_addr = USER, .size_bytes = RAM_BYTES, .at = w->ram};
        struct device_setup setup = {
                .guest_cid = CID,
                .streams = {.path = "/nonexistent/wbvsock", .most = 4, .buffer_bytes = 4096},
                .notify = nothing,
                .broken = nothing,
        };
        int r0, pair[2];

        memset(w, 0, offsetof(struct world, base));
        log_setup("fuzz", LOG_LEVEL_ERROR);
        (void)signal(SIGPIPE, SIG_IGN);
        w->base = event_base_new();
        setup.streams.base = w->base;
        r0 = memory_add(&w->memory, &r);
        assert(r0 == 0);
        r0 = device_new(&setup, 1, &w->device);
        assert(r0 == 0);
        for (unsigned i = 0; i < DEVICE_QUEUES; i++) {
                struct virtqueue_setup s = {
                        .size = SIZE,
                        .desc_addr = USER + i * QUEUE_AT,
                        .avail_addr = USER + i * QUEUE_AT + 0x200,
                        .used_addr = USER + i * QUEUE_AT + 0x400,
                        .event_idx = true,
                        .indirect = true,
                };

                r0 = virtqueue_init(&w->queues[i], &w->memory, &s);
                assert(r0 == 0);
        }
        device_run(w->device, &w->queues[DEVICE_RX], &w->queues[DEVICE_TX]);
        r0 = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
        assert(r0 == 0);
        w->host_fd = pair[0];
        (void)device_connect(w->device, 1024, pair[1]);
}

static void step(struct world *w)
{
        device_pump(w->device);
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static void end(struct world *w)
{
        device_free(w->device);
        if (w->host_fd >= 0)
                close(w->host_fd);
        event_base_free(w->base);
}

static void raw(struct world *w, const uint8_t *data, size_t n)
{
        memcpy(w->ram, data, n < RAM_BYTES ? n : RAM_BYTES);
        for (int i = 0; i < 4; i++)
                step(w);
}

static void offer(struct world *w, unsigned queue, uint16_t i, uint32_t len, uint16_t flags)
{
        struct vring_desc *d = part(w, queue, 0);
        struct vring_avail *a = part(w, queue, 0x200);

        d[i].addr = DATA_AT + (queue * SIZE + i) * SLOT;
        d[i].len = len;
        d[i].flags = flags;
        a->ring[a->idx % SIZE] = i;
        a->idx++;
}

/* What the host does besides: writes, reads, shuts, closes. */
static void stir_host(struct world *w, uint8_t how)
{
        char some[256] = "some";

        if (w->host_fd < 0)
                return;
        switch (how & 7) {
        case 1: (void)!write(w->host_fd, some, sizeof(some)); break;
        case 2: (void)!read(w->host_fd, some, sizeof(some)); break;
        case 3: (void)shutdown(w->host_fd, SHUT_WR); break;
        case 4: (void)shutdown(w->host_fd, SHUT_RD); break;
        case 5:
                close(w->host_fd);
                w->host_fd = -1;
                break;
        default: break;
        }
}

static void packets(struct world *w, const uint8_t *data, size_t n)
{
        for (uint16_t i = 0; n >= 8; data += 8, n -= 8, i = (i + 1) % SIZE) {
                struct packet p = {
                        .src_cid = CID,
                        .dst_cid = data[0] & 0x80 ? data[0] : 2,
                        .src_port = 1024,
                        .dst_port = 0x40000000u + (data[0] >> 5 & 3),
                        .len = data[1],
                        .type = 1,
                        .op = data[0] & 0xf,
                        .flags = data[2],
                        .buf_alloc = data[3] * 16u,
                        .fwd_cnt = data[4],
                };

                stir_host(w, data[5]);
                packet_encode(&p, w->ram + DATA_AT + (DEVICE_TX * SIZE + i) * SLOT);
                offer(w, DEVICE_TX, i, PACKET_HEADER_BYTES + data[6], 0);
                if (data[7] & 1)
                        offer(w, DEVICE_RX, i, SLOT, VRING_DESC_F_WRITE);
                step(w);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static struct world w;

        if (n == 0)
                return 0;
        begin(&w);
        if (data[0] & 1)
                packets(&w, data + 1, n - 1);
        else
                raw(&w, data + 1, n - 1);
        end(&w);
        return 0;
}
