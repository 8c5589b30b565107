/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The header of a virtio-vsock packet (virtio 1.2, 5.10.6; linux/virtio_vsock.h), as bytes and as a struct. Pure. */

#include <stddef.h>
#include <stdint.h>

#define PACKET_HEADER_BYTES 44u

/* The largest payload that Linux sends or takes: VIRTIO_VSOCK_MAX_PKT_BUF_SIZE. */
#define PACKET_PAYLOAD_MAX_BYTES (64u * 1024u)

struct packet {
        uint64_t src_cid;
        uint64_t dst_cid;
        uint32_t src_port;
        uint32_t dst_port;
        uint32_t len;  /* of the payload */
        uint16_t type; /* enum virtio_vsock_type */
        uint16_t op;   /* enum virtio_vsock_op */
        uint32_t flags;
        uint32_t buf_alloc; /* credit: what the sender can hold of this connection, */
        uint32_t fwd_cnt;   /* and how much its reader has taken so far */
};

void packet_decode(const uint8_t bytes[PACKET_HEADER_BYTES], struct packet *ret);
void packet_encode(const struct packet *p, uint8_t ret_bytes[PACKET_HEADER_BYTES]);

#define PACKET_E_IGNORE 1 /* forged or senseless: not worth an answer */
#define PACKET_E_RESET  2 /* not served: answer with packet_reset() */

/* Judges what a guest sent behind which payload_bytes stood: 0, PACKET_E_IGNORE or PACKET_E_RESET. */
int packet_check(const struct packet *p, uint64_t guest_cid, size_t payload_bytes);

/* The RST that answers p. */
void packet_reset(const struct packet *p, struct packet *ret);
