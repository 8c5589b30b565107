/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/device.h"

#include <assert.h>
#include <errno.h>
#include <linux/virtio_vsock.h>
#include <stdlib.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

/* Packets in one round of a queue before the loop looks at other descriptors. */
#define TX_ROUND 256u
#define RX_ROUND 128u

/* rx buffers that one read fills: 64 KiB of Linux's, which are 4 KiB each. */
#define RX_BATCH 16u

/* What readv() takes (UIO_MAXIOV of linux/uio.h). */
#define IOV_MOST 1024u

/* Resets for connections that there are not. */
#define RESETS_MOST 256u

struct device {
        struct device_setup setup;
        struct streams streams;
        struct event wake;    /* a round is due */
        struct virtqueue *rx; /* NULL: not running */
        struct virtqueue *tx;

        struct packet resets[RESETS_MOST]; /* a ring */
        unsigned resets_first;
        unsigned resets_n;

        /* Room for one round; here, for it is too much for a stack. */
        struct virtqueue_chain tx_chain;
        struct virtqueue_chain rx_chains[RX_BATCH];
        struct iovec iov[IOV_MOST];
};

static_assert(VIRTQUEUE_IOV_MAX <= IOV_MOST, "one chain can be read or written in one call");

static void report_broken(struct device *d, enum device_queue which)
{
        d->setup.broken(which, d->setup.arg);
}

static void answer_reset(struct device *d, const struct packet *p)
{
        assert(d->resets_n < RESETS_MOST);
        packet_reset(p, &d->resets[(d->resets_first + d->resets_n++) % RESETS_MOST]);
}

static void take_packet(struct device *d, const struct packet *p, size_t payload_bytes)
{
        const struct virtqueue_chain *c = &d->tx_chain;
        int verdict = packet_check(p, d->setup.guest_cid, payload_bytes);
        struct stream *s;

        if (verdict == PACKET_E_IGNORE)
                return;
        s = p->dst_cid == WB_CID_HOST ? streams_find(&d->streams, p->src_port, p->dst_port) : NULL;
        if (s && verdict == PACKET_E_RESET) {
                stream_abort(s);
        } else if (s) {
                unsigned n = 0;

                if (p->op == VIRTIO_VSOCK_OP_RW)
                        n = iov_slice(c->iov, c->readable_n, PACKET_HEADER_BYTES, p->len, d->iov);
                stream_receive(s, p, d->iov, n);
        } else if (verdict == 0 && p->op == VIRTIO_VSOCK_OP_REQUEST) {
                if (streams_accept(&d->streams, p) < 0)
                        answer_reset(d, p);
        } else if (p->op != VIRTIO_VSOCK_OP_RST) {
                answer_reset(d, p);
        }
}

static void take_chain(struct device *d)
{
        const struct virtqueue_chain *c = &d->tx_chain;
        uint8_t header[PACKET_HEADER_BYTES];
        struct packet p;

        /* Out of the guest's memory once; what is checked is what is used. */
        if (iov_read(c->iov, c->readable_n, 0, header, sizeof(header)) != sizeof(header))
                return;
        packet_decode(header, &p);
        take_packet(d, &p, c->readable_bytes - sizeof(header));
}

/* True if there may be more. */
static bool tx_round(struct device *d)
{
        bool more = true;

        virtqueue_ignore_kicks(d->tx);
        for (unsigned i = 0; more && i < TX_ROUND && d->resets_n < RESETS_MOST; i++) {
                int r = virtqueue_peek(d->tx, 0, &d->tx_chain);

                if (r == 0) {
                        take_chain(d);
                        virtqueue_complete(d->tx, &d->tx_chain, 0);
                } else if (r == VIRTQUEUE_E_EMPTY) {
                        more = virtqueue_want_kick(d->tx);
                } else {
                        report_broken(d, DEVICE_TX);
                        more = false;
                }
        }
        if (virtqueue_publish(d->tx))
                d->setup.notify(DEVICE_TX, d->setup.arg);
        return more;
}

/* An rx buffer can only be written, and takes a header and something. */
static int peek_rx(struct device *d, unsigned ahead)
{
        struct virtqueue_chain *c = &d->rx_chains[ahead];
        int r = virtqueue_peek(d->rx, ahead, c);

        if (r == 0 && (c->readable_n || c->writable_bytes <= PACKET_HEADER_BYTES)) {
                d->rx->broken = true;
                r = -EBADMSG;
        }
        return r;
}

/* Into the next rx buffer, which has been peeked at and, where there is payload, filled behind the header. */
static void put_packet(struct device *d, const struct virtqueue_chain *c, struct packet *p)
{
        uint8_t header[PACKET_HEADER_BYTES];

        p->dst_cid = d->setup.guest_cid;
        packet_encode(p, header);
        iov_write(c->iov, c->iov_n, 0, header, sizeof(header));
        virtqueue_complete(d->rx, c, PACKET_HEADER_BYTES + p->len);
}

/* The room for payload in one buffer, of at most n bytes. */
static size_t payload_room(const struct virtqueue_chain *c, size_t n)
{
        size_t room = c->writable_bytes - PACKET_HEADER_BYTES;

        if (room > PACKET_PAYLOAD_MAX_BYTES)
                room = PACKET_PAYLOAD_MAX_BYTES;
        return room < n ? room : n;
}

/* One read into several buffers, the first of which has been peeked at. */
static int put_data(struct device *d, struct stream *s, uint32_t most)
{
        size_t room = 0, got;
        unsigned chains_n = 0, iov_n = 0;

        while (chains_n < RX_BATCH && room < most) {
                struct virtqueue_chain *c = &d->rx_chains[chains_n];
                int r = chains_n ? peek_rx(d, chains_n) : 0;
                size_t n;

                if (r < 0)
                        return r;
                if (r == VIRTQUEUE_E_EMPTY || iov_n + c->iov_n > IOV_MOST)
                        break;
                n = payload_room(c, most - room);
                iov_n += iov_slice(c->iov, c->iov_n, PACKET_HEADER_BYTES, n, d->iov + iov_n);
                room += n;
                chains_n++;
        }
        got = stream_read(s, d->iov, iov_n);
        for (unsigned i = 0; got; i++) {
                size_t n = payload_room(&d->rx_chains[i], got);
                struct packet p;

                connection_data(&s->connection, (uint32_t)n, &p);
                put_packet(d, &d->rx_chains[i], &p);
                got -= n;
        }
        return 0;
}

/* The next thing for the guest. 0, VIRTQUEUE_E_EMPTY: no buffer, or -EBADMSG. */
static int rx_one(struct device *d)
{
        struct stream *s;
        struct packet p;
        uint32_t most;
        int r = peek_rx(d, 0);

        if (r != 0)
                return r;
        if (d->resets_n) {
                put_packet(d, &d->rx_chains[0], &d->resets[d->resets_first]);
                d->resets_first = (d->resets_first + 1) % RESETS_MOST;
                d->resets_n--;
                return 0;
        }
        s = streams_get_ready(&d->streams);
        if (!s)
                return 0;
        if (connection_control(&s->connection, &p))
                put_packet(d, &d->rx_chains[0], &p);
        else if (stream_wants_read(s, &most))
                r = put_data(d, s, most);
        stream_settle(s);
        return r;
}

/* True if there is more to put and room for it. */
static bool rx_round(struct device *d)
{
        bool more = true;

        virtqueue_ignore_kicks(d->rx);
        for (unsigned i = 0; more && i < RX_ROUND; i++) {
                int r;

                if (!d->resets_n && TAILQ_EMPTY(&d->streams.ready))
                        more = false;
                else if ((r = rx_one(d)) == VIRTQUEUE_E_EMPTY)
                        more = virtqueue_want_kick(d->rx);
                else if (r < 0) {
                        report_broken(d, DEVICE_RX);
                        more = false;
                }
        }
        if (virtqueue_publish(d->rx))
                d->setup.notify(DEVICE_RX, d->setup.arg);
        return more;
}

void device_pump(struct device *d)
{
        static const struct timeval at_once = {0};
        bool tx_more, rx_more, stalled;

        if (!device_is_running(d) || d->rx->broken || d->tx->broken)
                return;
        d->streams.quiet = true;
        tx_more = tx_round(d);
        stalled = d->resets_n == RESETS_MOST;
        rx_more = rx_round(d);
        d->streams.quiet = false;
        if (d->rx->broken || d->tx->broken) {
                /* The host shall not wait for what never comes. */
                device_drop(d);
                return;
        }
        /* A stalled tx goes on when rx has room again: the kick for that comes here too. */
        if (rx_more || ((tx_more || stalled) && d->resets_n < RESETS_MOST))
                event_add(&d->wake, &at_once);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
        (void)fd;
        (void)what;
        device_pump(arg);
}

int device_new(const struct device_setup *setup, uint32_t seed, struct device **ret)
{
        struct device *d = calloc(1, sizeof(*d));
        int r;

        if (!d)
                return -ENOMEM;
        d->setup = *setup;
        evtimer_assign(&d->wake, setup->streams.base, on_wake, d);
        r = streams_init(&d->streams, &setup->streams, seed, &d->wake);
        if (r < 0) {
                free(d);
                return r;
        }
        *ret = d;
        return 0;
}

void device_free(struct device *d)
{
        streams_done(&d->streams);
        event_del(&d->wake);
        free(d);
}

void device_run(struct device *d, struct virtqueue *rx, struct virtqueue *tx)
{
        d->rx = rx;
        d->tx = tx;
        device_pump(d);
}

void device_pause(struct device *d)
{
        d->rx = NULL;
        d->tx = NULL;
}

bool device_is_running(const struct device *d)
{
        return d->rx && d->tx;
}

void device_drop(struct device *d)
{
        streams_drop(&d->streams);
        d->resets_n = 0;
}

int device_connect(struct device *d, uint32_t guest_port, int fd)
{
        if (!device_is_running(d) || d->rx->broken || d->tx->broken) {
                close_fd(fd);
                return -ENOTCONN;
        }
        return streams_connect(&d->streams, guest_port, fd);
}
