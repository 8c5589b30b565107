/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/packet.h"

#include <assert.h>
#include <endian.h>
#include <linux/virtio_vsock.h>
#include <string.h>

#include "proto/wire/limits.h"

static_assert(sizeof(struct virtio_vsock_hdr) == PACKET_HEADER_BYTES, "the header of virtio 1.2, 5.10.6");

void packet_decode(const uint8_t bytes[PACKET_HEADER_BYTES], struct packet *ret)
{
        struct virtio_vsock_hdr h;

        memcpy(&h, bytes, sizeof(h));
        *ret = (struct packet){
                .src_cid = le64toh(h.src_cid),
                .dst_cid = le64toh(h.dst_cid),
                .src_port = le32toh(h.src_port),
                .dst_port = le32toh(h.dst_port),
                .len = le32toh(h.len),
                .type = le16toh(h.type),
                .op = le16toh(h.op),
                .flags = le32toh(h.flags),
                .buf_alloc = le32toh(h.buf_alloc),
                .fwd_cnt = le32toh(h.fwd_cnt),
        };
}

void packet_encode(const struct packet *p, uint8_t ret_bytes[PACKET_HEADER_BYTES])
{
        struct virtio_vsock_hdr h = {
                .src_cid = htole64(p->src_cid),
                .dst_cid = htole64(p->dst_cid),
                .src_port = htole32(p->src_port),
                .dst_port = htole32(p->dst_port),
                .len = htole32(p->len),
                .type = htole16(p->type),
                .op = htole16(p->op),
                .flags = htole32(p->flags),
                .buf_alloc = htole32(p->buf_alloc),
                .fwd_cnt = htole32(p->fwd_cnt),
        };

        memcpy(ret_bytes, &h, sizeof(h));
}

int packet_check(const struct packet *p, uint64_t guest_cid, size_t payload_bytes)
{
        /* A guest speaks for itself only. */
        if (p->src_cid != guest_cid)
                return PACKET_E_IGNORE;
        if (p->op == VIRTIO_VSOCK_OP_INVALID || p->op > VIRTIO_VSOCK_OP_CREDIT_REQUEST)
                return PACKET_E_RESET;
        /* Nothing is behind another CID, and SEQPACKET was not offered. A reset is not answered with one. */
        if (p->dst_cid != WB_CID_HOST || p->type != VIRTIO_VSOCK_TYPE_STREAM)
                return p->op == VIRTIO_VSOCK_OP_RST ? PACKET_E_IGNORE : PACKET_E_RESET;
        if (p->op == VIRTIO_VSOCK_OP_RW && (p->len > payload_bytes || p->len > PACKET_PAYLOAD_MAX_BYTES))
                return PACKET_E_RESET;
        return 0;
}

void packet_reset(const struct packet *p, struct packet *ret)
{
        *ret = (struct packet){
                .src_cid = p->dst_cid,
                .dst_cid = p->src_cid,
                .src_port = p->dst_port,
                .dst_port = p->src_port,
                .type = p->type,
                .op = VIRTIO_VSOCK_OP_RST,
        };
}
