/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device's side of one split virtqueue (virtio 1.2, 2.7), with EVENT_IDX and INDIRECT_DESC. Pure: it works on a
 * struct memory and never asks anybody else.
 *
 * The guest can write all of it at any time. So every index, length and address is loaded once and checked as loaded; a
 * chain that breaks the rules breaks the queue, which then stays silent until the driver sets the device up again.
 * Chains are completed in the order they came, each before the next call of virtqueue_peek() with ahead 0.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tools/wbvsock/memory.h"

#define VIRTQUEUE_SIZE_MAX 32768u /* 2.7: the largest that the layout allows */

/* Segments of a chain. Linux sends a 64 KiB packet in at most 19; a queue's default size is 128. */
#define VIRTQUEUE_IOV_MAX 256u

struct virtqueue_setup {
        uint32_t size;      /* entries, a power of two */
        uint64_t desc_addr; /* the VMM's addresses */
        uint64_t avail_addr;
        uint64_t used_addr;
        uint16_t base; /* the first available entry that is new */
        bool event_idx;
        bool indirect;
};

struct virtqueue {
        const struct memory *memory; /* outlives the queue */
        struct vring_desc *desc;
        struct vring_avail *avail;
        struct vring_used *used;
        uint16_t size;
        uint16_t next_avail; /* the first entry that is not completed */
        uint16_t next_used;
        uint16_t told_used; /* next_used when the driver was last told, if told_valid */
        bool told_valid;
        bool event_idx;
        bool indirect;
        bool broken;
};

/* One chain: first what the driver wrote, then where the device may write. Points into guest memory. */
struct virtqueue_chain {
        uint16_t head;
        unsigned iov_n;
        unsigned readable_n; /* the first so many of iov */
        size_t readable_bytes;
        size_t writable_bytes;
        struct iovec iov[VIRTQUEUE_IOV_MAX];
};

/* 0, or -EINVAL: a bad size, an alignment that 2.7 forbids, a part that does not lie in one region. */
int virtqueue_init(struct virtqueue *q, const struct memory *memory, const struct virtqueue_setup *setup);

#define VIRTQUEUE_E_EMPTY 1

/* The chain that is `ahead` behind the next one; takes nothing. 0, VIRTQUEUE_E_EMPTY, or -EBADMSG: the queue is broken.
 */
int virtqueue_peek(struct virtqueue *q, unsigned ahead, struct virtqueue_chain *ret_chain);

/* Completes the next chain, into which written_bytes have been put. The driver sees it after virtqueue_publish(). */
void virtqueue_complete(struct virtqueue *q, const struct virtqueue_chain *chain, uint32_t written_bytes);

/* Shows what was completed; true if the driver wants to be interrupted for it. */
bool virtqueue_publish(struct virtqueue *q);

/* Asks for a kick at the next chain; true if one has come in meanwhile, for which there may be none. */
bool virtqueue_want_kick(struct virtqueue *q);

/* Kicks may stop: the device looks by itself. */
void virtqueue_ignore_kicks(struct virtqueue *q);

/*
 * Copies between a run of segments and plain memory, from skip_bytes on; answers how many bytes there were.
 * iov_slice() gives the segments of at most n bytes from skip_bytes on, ret_iov having room for iov_n.
 */
size_t iov_read(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, void *to, size_t n);
size_t iov_write(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, const void *from, size_t n);
unsigned iov_slice(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, size_t n, struct iovec *ret_iov);
