/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/connection.h"

#include <assert.h>
#include <linux/virtio_vsock.h>

#include "proto/wire/limits.h"

#define SHUT_BOTH (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)

/* In the order in which they are sent. */
enum pending {
        PENDING_RST,
        PENDING_REQUEST,
        PENDING_RESPONSE,
        PENDING_SHUTDOWN,
        PENDING_CREDIT_UPDATE,
        PENDING_CREDIT_REQUEST,
        PENDING_N,
};

static const uint16_t pending_ops[] = {
        [PENDING_RST] = VIRTIO_VSOCK_OP_RST,
        [PENDING_REQUEST] = VIRTIO_VSOCK_OP_REQUEST,
        [PENDING_RESPONSE] = VIRTIO_VSOCK_OP_RESPONSE,
        [PENDING_SHUTDOWN] = VIRTIO_VSOCK_OP_SHUTDOWN,
        [PENDING_CREDIT_UPDATE] = VIRTIO_VSOCK_OP_CREDIT_UPDATE,
        [PENDING_CREDIT_REQUEST] = VIRTIO_VSOCK_OP_CREDIT_REQUEST,
};
static_assert(sizeof(pending_ops) / sizeof(*pending_ops) == PENDING_N, "an op for each");

static const unsigned next_states[] = {
        [CONNECTION_DIALING] = 1u << CONNECTION_OPEN | 1u << CONNECTION_CLOSED,
        [CONNECTION_REQUESTED] = 1u << CONNECTION_OPEN | 1u << CONNECTION_CLOSED,
        [CONNECTION_OPEN] = 1u << CONNECTION_ENDING | 1u << CONNECTION_CLOSED,
        [CONNECTION_ENDING] = 1u << CONNECTION_CLOSED,
        [CONNECTION_CLOSED] = 0,
};
static_assert(sizeof(next_states) / sizeof(*next_states) == CONNECTION_CLOSED + 1, "each state has its next ones");

static void set_state(struct connection *c, enum connection_state next)
{
        assert(next_states[c->state] & 1u << next);
        c->state = next;
        if (next == CONNECTION_CLOSED)
                c->pending = 0;
}

static void want(struct connection *c, enum pending what)
{
        c->pending |= 1u << what;
}

void connection_init_guest(struct connection *c, const struct packet *request, uint32_t buf_alloc)
{
        *c = (struct connection){
                .guest_port = request->src_port,
                .host_port = request->dst_port,
                .state = CONNECTION_DIALING,
                .buf_alloc = buf_alloc,
                .peer_buf_alloc = request->buf_alloc,
                .peer_forwarded = request->fwd_cnt,
        };
}

void connection_init_host(struct connection *c, uint32_t guest_port, uint32_t host_port, uint32_t buf_alloc)
{
        *c = (struct connection){
                .guest_port = guest_port,
                .host_port = host_port,
                .state = CONNECTION_REQUESTED,
                .buf_alloc = buf_alloc,
        };
        want(c, PENDING_REQUEST);
}

void connection_dialed(struct connection *c)
{
        set_state(c, CONNECTION_OPEN);
        want(c, PENDING_RESPONSE);
}

void connection_close(struct connection *c)
{
        if (c->state == CONNECTION_CLOSED)
                return;
        /* A guest that was never asked knows nothing to reset. */
        bool known = !(c->pending & 1u << PENDING_REQUEST);

        set_state(c, CONNECTION_CLOSED);
        if (known)
                want(c, PENDING_RST);
}

void connection_host_shut(struct connection *c, uint8_t flags)
{
        if (c->state != CONNECTION_OPEN || (c->host_shut | flags) == c->host_shut)
                return;
        c->host_shut |= flags;
        want(c, PENDING_SHUTDOWN);
}

void connection_host_closed(struct connection *c)
{
        if (c->state == CONNECTION_OPEN) {
                connection_host_shut(c, SHUT_BOTH);
                set_state(c, CONNECTION_ENDING);
        } else if (c->state != CONNECTION_ENDING) {
                connection_close(c);
        }
}

static enum connection_action abort_it(struct connection *c)
{
        connection_close(c);
        return CONNECTION_DO_ABORT;
}

/* The guest's RST is the last word: nothing is said after it. */
static enum connection_action receive_reset(struct connection *c)
{
        if (c->state == CONNECTION_CLOSED) {
                c->pending = 0;
                return CONNECTION_DO_NOTHING;
        }
        set_state(c, CONNECTION_CLOSED);
        return CONNECTION_DO_CLOSE;
}

/*
 * When the guest has shut both ways all of its bytes are here, for they came before in the same queue, and it takes
 * none any more. It waits for our RST to forget the connection, so it gets that at once.
 */
static enum connection_action receive_shutdown(struct connection *c, uint8_t flags)
{
        c->guest_shut |= flags & SHUT_BOTH;
        if (c->guest_shut != SHUT_BOTH)
                return CONNECTION_DO_SHUT;
        connection_close(c);
        return CONNECTION_DO_CLOSE;
}

static enum connection_action receive_data(struct connection *c, uint32_t n)
{
        if ((c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) || n > c->buf_alloc - (c->received - c->forwarded))
                return abort_it(c);
        c->received += n;
        return CONNECTION_DO_DATA;
}

static enum connection_action receive_open(struct connection *c, const struct packet *p)
{
        switch ((enum virtio_vsock_op)p->op) {
        case VIRTIO_VSOCK_OP_RW: return receive_data(c, p->len);
        case VIRTIO_VSOCK_OP_SHUTDOWN: return receive_shutdown(c, (uint8_t)p->flags);
        case VIRTIO_VSOCK_OP_CREDIT_UPDATE: return CONNECTION_DO_NOTHING;
        case VIRTIO_VSOCK_OP_CREDIT_REQUEST: want(c, PENDING_CREDIT_UPDATE); return CONNECTION_DO_NOTHING;
        case VIRTIO_VSOCK_OP_INVALID:
        case VIRTIO_VSOCK_OP_REQUEST:
        case VIRTIO_VSOCK_OP_RESPONSE:
        case VIRTIO_VSOCK_OP_RST: break;
        }
        return abort_it(c);
}

/* The host is gone, so bytes are taken and dropped; that the guest has closed too is what counts. */
static enum connection_action receive_ending(struct connection *c, const struct packet *p)
{
        if (p->op == VIRTIO_VSOCK_OP_SHUTDOWN)
                return receive_shutdown(c, (uint8_t)p->flags);
        if (p->op == VIRTIO_VSOCK_OP_REQUEST || p->op == VIRTIO_VSOCK_OP_RESPONSE)
                return abort_it(c);
        return CONNECTION_DO_NOTHING;
}

static uint32_t credit(const struct connection *c)
{
        uint32_t in_flight = c->sent - c->peer_forwarded;

        return in_flight < c->peer_buf_alloc ? c->peer_buf_alloc - in_flight : 0;
}

enum connection_action connection_receive(struct connection *c, const struct packet *p)
{
        if (p->op == VIRTIO_VSOCK_OP_RST)
                return receive_reset(c);

        c->peer_buf_alloc = p->buf_alloc;
        c->peer_forwarded = p->fwd_cnt;
        if (credit(c) > 0)
                c->credit_asked = false;

        switch (c->state) {
        case CONNECTION_DIALING:
                /* It may only give up. */
                if (p->op == VIRTIO_VSOCK_OP_SHUTDOWN)
                        return receive_shutdown(c, (uint8_t)p->flags);
                return abort_it(c);
        case CONNECTION_REQUESTED:
                if (p->op != VIRTIO_VSOCK_OP_RESPONSE || (c->pending & 1u << PENDING_REQUEST))
                        return abort_it(c);
                set_state(c, CONNECTION_OPEN);
                return CONNECTION_DO_ANSWER;
        case CONNECTION_OPEN: return receive_open(c, p);
        case CONNECTION_ENDING: return receive_ending(c, p);
        case CONNECTION_CLOSED: break;
        }
        return CONNECTION_DO_NOTHING;
}

/*
 * The guest is told when it would think less than half of its room free; before that it has no reason to wait. Steps
 * below an eighth are not worth a packet, except the last one. Its room is our buffer or its own, if that is less:
 * Linux sends no more than that on credit ("vsock/virtio: cap TX credit to local buffer size").
 */
void connection_forwarded(struct connection *c, uint32_t n)
{
        uint32_t room = c->peer_buf_alloc < c->buf_alloc ? c->peer_buf_alloc : c->buf_alloc;
        uint32_t untold, seen_used;

        assert(n <= c->received - c->forwarded);
        c->forwarded += n;
        if (c->state != CONNECTION_OPEN || (c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND))
                return;
        untold = c->forwarded - c->told_forwarded;
        seen_used = c->received - c->told_forwarded;
        if (untold && seen_used >= room / 2 && (untold >= room / 8 || c->forwarded == c->received))
                want(c, PENDING_CREDIT_UPDATE);
}

uint32_t connection_credit(struct connection *c)
{
        uint32_t n = credit(c);

        if (n == 0 && !c->credit_asked && connection_may_send(c)) {
                c->credit_asked = true;
                want(c, PENDING_CREDIT_REQUEST);
        }
        return n;
}

bool connection_may_send(const struct connection *c)
{
        return c->state == CONNECTION_OPEN && !(c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV) &&
               !(c->host_shut & VIRTIO_VSOCK_SHUTDOWN_SEND);
}

bool connection_has_control(const struct connection *c)
{
        return c->pending != 0;
}

/* Every packet carries the credit, so none has to be told behind it. */
static void stamp(struct connection *c, uint16_t op, struct packet *ret)
{
        *ret = (struct packet){
                .src_cid = WB_CID_HOST,
                .src_port = c->host_port,
                .dst_port = c->guest_port,
                .type = VIRTIO_VSOCK_TYPE_STREAM,
                .op = op,
                .buf_alloc = c->buf_alloc,
                .fwd_cnt = c->forwarded,
        };
        c->told_forwarded = c->forwarded;
        c->pending &= ~(1u << PENDING_CREDIT_UPDATE);
}

bool connection_control(struct connection *c, struct packet *ret)
{
        for (unsigned i = 0; i < PENDING_N; i++) {
                if (!(c->pending & 1u << i))
                        continue;
                c->pending &= ~(1u << i);
                stamp(c, pending_ops[i], ret);
                if (i == PENDING_SHUTDOWN)
                        ret->flags = c->host_shut;
                return true;
        }
        return false;
}

void connection_data(struct connection *c, uint32_t n, struct packet *ret)
{
        stamp(c, VIRTIO_VSOCK_OP_RW, ret);
        ret->len = n;
        c->sent += n;
}
