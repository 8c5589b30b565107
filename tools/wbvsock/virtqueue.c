/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/virtqueue.h"

#include <endian.h>
#include <errno.h>
#include <linux/virtio_ring.h>
#include <string.h>

static uint16_t load_le16(const __virtio16 *at)
{
        return le16toh(__atomic_load_n(at, __ATOMIC_RELAXED));
}

static void store_le16(__virtio16 *at, uint16_t value)
{
        __atomic_store_n(at, htole16(value), __ATOMIC_RELAXED);
}

/*
 * One copy, in host order. The barrier keeps the compiler from reading the guest's copy a second time. An indirect
 * table may stand at any address, hence no pointer to the struct.
 */
static struct vring_desc load_desc(const void *at)
{
        struct vring_desc d;

        memcpy(&d, at, sizeof(d));
        __asm__ volatile("" ::: "memory");
        return (struct vring_desc){
                .addr = le64toh(d.addr), .len = le32toh(d.len), .flags = le16toh(d.flags), .next = le16toh(d.next)};
}

/* Behind each ring stands the index at which the other side wants to hear (2.7.10). */
static __virtio16 *used_event(const struct virtqueue *q)
{
        return &q->avail->ring[q->size];
}

static __virtio16 *avail_event(const struct virtqueue *q)
{
        return (__virtio16 *)(void *)&q->used->ring[q->size];
}

static void *part(const struct memory *m, uint64_t addr, uint64_t n, uint64_t alignment)
{
        void *at = memory_from_user(m, addr, n);

        return at && (uintptr_t)at % alignment == 0 ? at : NULL;
}

int virtqueue_init(struct virtqueue *q, const struct memory *memory, const struct virtqueue_setup *setup)
{
        uint64_t n = setup->size;
        struct virtqueue fresh = {
                .memory = memory,
                .size = (uint16_t)setup->size,
                .next_avail = setup->base,
                .event_idx = setup->event_idx,
                .indirect = setup->indirect,
        };

        if (n == 0 || n > VIRTQUEUE_SIZE_MAX || (n & (n - 1)) != 0)
                return -EINVAL;
        fresh.desc = part(memory, setup->desc_addr, n * sizeof(struct vring_desc), VRING_DESC_ALIGN_SIZE);
        fresh.avail = part(memory, setup->avail_addr, sizeof(struct vring_avail) + (n + 1) * sizeof(__virtio16),
                VRING_AVAIL_ALIGN_SIZE);
        fresh.used = part(memory, setup->used_addr,
                sizeof(struct vring_used) + n * sizeof(struct vring_used_elem) + sizeof(__virtio16),
                VRING_USED_ALIGN_SIZE);
        if (!fresh.desc || !fresh.avail || !fresh.used)
                return -EINVAL;
        fresh.next_used = load_le16(&fresh.used->idx);
        *q = fresh;
        return 0;
}

static int add_segment(const struct virtqueue *q, const struct vring_desc *d, struct virtqueue_chain *c)
{
        bool writable = d->flags & VRING_DESC_F_WRITE;
        uint64_t addr = d->addr, left = d->len;

        if (!writable && c->iov_n > c->readable_n)
                return -EBADMSG; /* 2.7.4.2: what the device reads comes first */
        while (left) {
                uint64_t n = 0;
                void *at = memory_from_guest(q->memory, addr, left, &n);

                if (!at || c->iov_n == VIRTQUEUE_IOV_MAX)
                        return -EBADMSG;
                c->iov[c->iov_n++] = (struct iovec){.iov_base = at, .iov_len = n};
                addr += n;
                left -= n;
        }
        if (writable) {
                c->writable_bytes += d->len;
        } else {
                c->readable_bytes += d->len;
                c->readable_n = c->iov_n;
        }
        return 0;
}

/*
 * Follows a table of n descriptors from one of them; a loop shows as more steps than there are descriptors. An indirect
 * one, which must be the last (2.7.5.3.1), is handed back in *ret_indirect.
 */
static int walk(const struct virtqueue *q, const uint8_t *table, uint32_t n, uint16_t at, struct virtqueue_chain *c,
        struct vring_desc *ret_indirect)
{
        for (uint32_t steps = 0; steps < n && at < n; steps++) {
                struct vring_desc d = load_desc(table + (size_t)at * sizeof(d));
                int r;

                if (d.flags & VRING_DESC_F_INDIRECT) {
                        if (!ret_indirect || (d.flags & VRING_DESC_F_NEXT))
                                return -EBADMSG;
                        *ret_indirect = d;
                        return 0;
                }
                r = add_segment(q, &d, c);
                if (r < 0)
                        return r;
                if (!(d.flags & VRING_DESC_F_NEXT))
                        return 0;
                at = d.next;
        }
        return -EBADMSG;
}

static int walk_indirect(const struct virtqueue *q, const struct vring_desc *d, struct virtqueue_chain *c)
{
        uint32_t n = d->len / (uint32_t)sizeof(struct vring_desc);
        uint64_t got = 0;
        void *table = memory_from_guest(q->memory, d->addr, d->len, &got);

        /* No chain may be longer than the queue (2.7.5.3.1), and a table that spans regions is nothing that a driver
         * makes. */
        if (!q->indirect || n == 0 || d->len % sizeof(struct vring_desc) != 0 || n > q->size || !table || got != d->len)
                return -EBADMSG;
        return walk(q, table, n, 0, c, NULL);
}

int virtqueue_peek(struct virtqueue *q, unsigned ahead, struct virtqueue_chain *ret_chain)
{
        struct vring_desc indirect = {0};
        uint16_t waiting;
        int r;

        if (q->broken)
                return -EBADMSG;
        waiting = (uint16_t)(le16toh(__atomic_load_n(&q->avail->idx, __ATOMIC_ACQUIRE)) - q->next_avail);
        if (waiting > q->size) {
                q->broken = true;
                return -EBADMSG;
        }
        if (ahead >= waiting)
                return VIRTQUEUE_E_EMPTY;

        ret_chain->head = load_le16(&q->avail->ring[(uint16_t)(q->next_avail + ahead) & (q->size - 1)]);
        ret_chain->iov_n = ret_chain->readable_n = 0;
        ret_chain->readable_bytes = ret_chain->writable_bytes = 0;
        r = walk(q, (const uint8_t *)q->desc, q->size, ret_chain->head, ret_chain, &indirect);
        if (r == 0 && (indirect.flags & VRING_DESC_F_INDIRECT))
                r = walk_indirect(q, &indirect, ret_chain);
        if (r < 0)
                q->broken = true;
        return r;
}

void virtqueue_complete(struct virtqueue *q, const struct virtqueue_chain *chain, uint32_t written_bytes)
{
        struct vring_used_elem *e = &q->used->ring[q->next_used & (q->size - 1)];

        e->id = htole32(chain->head);
        e->len = htole32(written_bytes);
        q->next_used++;
        q->next_avail++;
}

bool virtqueue_publish(struct virtqueue *q)
{
        uint16_t now = q->next_used, before = q->told_used;
        bool first = !q->told_valid;

        if (!first && now == before)
                return false;
        __atomic_store_n(&q->used->idx, htole16(now), __ATOMIC_RELEASE);
        q->told_used = now;
        q->told_valid = true;

        /* The driver sets its wish, then looks at idx; we set idx, then look at its wish. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (!q->event_idx)
                return !(load_le16(&q->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
        return first || vring_need_event(load_le16(used_event(q)), now, before);
}

bool virtqueue_want_kick(struct virtqueue *q)
{
        if (q->broken)
                return false;
        if (q->event_idx)
                store_le16(avail_event(q), q->next_avail);
        else
                store_le16(&q->used->flags, 0);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return load_le16(&q->avail->idx) != q->next_avail;
}

void virtqueue_ignore_kicks(struct virtqueue *q)
{
        /* With EVENT_IDX the index that stands there has passed already. */
        if (!q->event_idx)
                store_le16(&q->used->flags, VRING_USED_F_NO_NOTIFY);
}

unsigned iov_slice(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, size_t n, struct iovec *ret_iov)
{
        unsigned out = 0;

        for (unsigned i = 0; i < iov_n && n; i++) {
                size_t len = iov[i].iov_len;

                if (skip_bytes >= len) {
                        skip_bytes -= len;
                        continue;
                }
                len -= skip_bytes;
                if (len > n)
                        len = n;
                ret_iov[out++] = (struct iovec){.iov_base = (uint8_t *)iov[i].iov_base + skip_bytes, .iov_len = len};
                skip_bytes = 0;
                n -= len;
        }
        return out;
}

size_t iov_read(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, void *to, size_t n)
{
        size_t done = 0;

        for (unsigned i = 0; i < iov_n && done < n; i++) {
                struct iovec s;

                if (iov_slice(&iov[i], 1, skip_bytes, n - done, &s)) {
                        memcpy((uint8_t *)to + done, s.iov_base, s.iov_len);
                        done += s.iov_len;
                        skip_bytes = 0;
                } else {
                        skip_bytes -= iov[i].iov_len;
                }
        }
        return done;
}

size_t iov_write(const struct iovec *iov, unsigned iov_n, size_t skip_bytes, const void *from, size_t n)
{
        size_t done = 0;

        for (unsigned i = 0; i < iov_n && done < n; i++) {
                struct iovec s;

                if (iov_slice(&iov[i], 1, skip_bytes, n - done, &s)) {
                        memcpy(s.iov_base, (const uint8_t *)from + done, s.iov_len);
                        done += s.iov_len;
                        skip_bytes = 0;
                } else {
                        skip_bytes -= iov[i].iov_len;
                }
        }
        return done;
}
