/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The messages of the vhost-user protocol (QEMU, docs/interop/vhost-user.rst) that this device answers. Pure: bytes to
 * checked structs. All numbers are in host order, for both sides share a machine.
 */

#include <stddef.h>
#include <stdint.h>

#include "tools/wbvsock/memory.h"

enum message_request {
        MESSAGE_GET_FEATURES = 1,
        MESSAGE_SET_FEATURES = 2,
        MESSAGE_SET_OWNER = 3,
        MESSAGE_RESET_OWNER = 4,
        MESSAGE_SET_MEM_TABLE = 5,
        MESSAGE_SET_VRING_NUM = 8,
        MESSAGE_SET_VRING_ADDR = 9,
        MESSAGE_SET_VRING_BASE = 10,
        MESSAGE_GET_VRING_BASE = 11,
        MESSAGE_SET_VRING_KICK = 12,
        MESSAGE_SET_VRING_CALL = 13,
        MESSAGE_SET_VRING_ERR = 14,
        MESSAGE_GET_PROTOCOL_FEATURES = 15,
        MESSAGE_SET_PROTOCOL_FEATURES = 16,
        MESSAGE_GET_QUEUE_NUM = 17,
        MESSAGE_SET_VRING_ENABLE = 18,
        MESSAGE_GET_CONFIG = 24,
};

#define MESSAGE_HEADER_BYTES 12u
#define MESSAGE_PAYLOAD_MAX  268u /* GET_CONFIG with MESSAGE_CONFIG_MAX; a table of all regions has 264 */
#define MESSAGE_QUEUES       2u   /* rx and tx; the event queue is QEMU's */
#define MESSAGE_CONFIG_MAX   256u /* VHOST_USER_MAX_CONFIG_SIZE */

#define MESSAGE_FLAG_VERSION    0x1u
#define MESSAGE_FLAG_REPLY      0x4u
#define MESSAGE_FLAG_NEED_REPLY 0x8u

struct message_header {
        uint32_t request;
        uint32_t flags;
        uint32_t size; /* of the payload */
};

struct message_mapping {
        uint64_t guest_addr;
        uint64_t size_bytes;
        uint64_t user_addr;
        uint64_t offset; /* in the file whose descriptor comes along */
};

/* A message whose payload has the shape of its request. Of the union, the member that the request names. */
struct message {
        enum message_request request;
        uint32_t need_reply; /* not 0: the sender wants an acknowledgement */
        union {
                uint64_t u64;
                struct {
                        uint32_t index;
                        uint32_t value;
                } state; /* NUM, BASE, GET_VRING_BASE, ENABLE */
                struct {
                        uint32_t index;
                        uint64_t desc_addr, used_addr, avail_addr;
                } addr;
                struct {
                        uint32_t index;
                        uint32_t has_fd;
                } file; /* KICK, CALL, ERR */
                struct {
                        uint32_t offset, size;
                } config;
                struct {
                        uint32_t n;
                        struct message_mapping regions[MEMORY_REGIONS_MAX];
                } memory;
        };
};

/* 0 or -EPROTO: another version, a reply, a payload too large. */
int message_header_parse(const uint8_t bytes[MESSAGE_HEADER_BYTES], struct message_header *ret);

/*
 * 0, -EPROTO (a size, a ring index, a flag or a count of descriptors that the request does not have), or -EOPNOTSUPP: a
 * request that needs a feature which was not offered.
 */
int message_parse(const struct message_header *h, const uint8_t *payload, size_t fds_n, struct message *ret);

/* "SET_MEM_TABLE", or "?". */
const char *message_name(uint32_t request);
