/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/message.h"

#include <assert.h>
#include <errno.h>
#include <linux/vhost_types.h>
#include <string.h>

#define FILE_INDEX_MASK UINT64_C(0xff)
#define FILE_NO_FD      UINT64_C(0x100)

/* On the wire: a struct vhost_memory_region whose last word is the offset in the file. */
static_assert(sizeof(struct message_mapping) == sizeof(struct vhost_memory_region), "as on the wire");

struct config_head {
        uint32_t offset, size, flags;
};

enum shape {
        SHAPE_NONE,
        SHAPE_U64,
        SHAPE_STATE,
        SHAPE_ADDR,
        SHAPE_FILE,
        SHAPE_MEMORY,
        SHAPE_CONFIG,
};

static const struct shape_of {
        const char *name; /* NULL: not served */
        enum shape shape;
} requests[] = {
        [MESSAGE_GET_FEATURES] = {"GET_FEATURES", SHAPE_NONE},
        [MESSAGE_SET_FEATURES] = {"SET_FEATURES", SHAPE_U64},
        [MESSAGE_SET_OWNER] = {"SET_OWNER", SHAPE_NONE},
        [MESSAGE_RESET_OWNER] = {"RESET_OWNER", SHAPE_NONE},
        [MESSAGE_SET_MEM_TABLE] = {"SET_MEM_TABLE", SHAPE_MEMORY},
        [MESSAGE_SET_VRING_NUM] = {"SET_VRING_NUM", SHAPE_STATE},
        [MESSAGE_SET_VRING_ADDR] = {"SET_VRING_ADDR", SHAPE_ADDR},
        [MESSAGE_SET_VRING_BASE] = {"SET_VRING_BASE", SHAPE_STATE},
        [MESSAGE_GET_VRING_BASE] = {"GET_VRING_BASE", SHAPE_STATE},
        [MESSAGE_SET_VRING_KICK] = {"SET_VRING_KICK", SHAPE_FILE},
        [MESSAGE_SET_VRING_CALL] = {"SET_VRING_CALL", SHAPE_FILE},
        [MESSAGE_SET_VRING_ERR] = {"SET_VRING_ERR", SHAPE_FILE},
        [MESSAGE_GET_PROTOCOL_FEATURES] = {"GET_PROTOCOL_FEATURES", SHAPE_NONE},
        [MESSAGE_SET_PROTOCOL_FEATURES] = {"SET_PROTOCOL_FEATURES", SHAPE_U64},
        [MESSAGE_GET_QUEUE_NUM] = {"GET_QUEUE_NUM", SHAPE_NONE},
        [MESSAGE_SET_VRING_ENABLE] = {"SET_VRING_ENABLE", SHAPE_STATE},
        [MESSAGE_GET_CONFIG] = {"GET_CONFIG", SHAPE_CONFIG},
};

static const struct shape_of *find(uint32_t request)
{
        if (request >= sizeof(requests) / sizeof(*requests) || !requests[request].name)
                return NULL;
        return &requests[request];
}

const char *message_name(uint32_t request)
{
        const struct shape_of *s = find(request);

        return s ? s->name : "?";
}

int message_header_parse(const uint8_t bytes[MESSAGE_HEADER_BYTES], struct message_header *ret)
{
        struct message_header h;

        static_assert(sizeof(h) == MESSAGE_HEADER_BYTES, "as on the wire");
        memcpy(&h, bytes, sizeof(h));
        if ((h.flags & ~MESSAGE_FLAG_NEED_REPLY) != MESSAGE_FLAG_VERSION || h.size > MESSAGE_PAYLOAD_MAX)
                return -EPROTO;
        *ret = h;
        return 0;
}

static int parse_state(const uint8_t *payload, uint32_t size, struct message *m)
{
        struct vhost_vring_state s;

        if (size != sizeof(s))
                return -EPROTO;
        memcpy(&s, payload, sizeof(s));
        if (s.index >= MESSAGE_QUEUES)
                return -EPROTO;
        m->state.index = s.index;
        m->state.value = s.num;
        return 0;
}

static int parse_addr(const uint8_t *payload, uint32_t size, struct message *m)
{
        struct vhost_vring_addr a;

        if (size != sizeof(a))
                return -EPROTO;
        memcpy(&a, payload, sizeof(a));
        if (a.index >= MESSAGE_QUEUES)
                return -EPROTO;
        if (a.flags & 1u << VHOST_VRING_F_LOG)
                return -EOPNOTSUPP;
        m->addr.index = a.index;
        m->addr.desc_addr = a.desc_user_addr;
        m->addr.used_addr = a.used_user_addr;
        m->addr.avail_addr = a.avail_user_addr;
        return 0;
}

static int parse_file(const uint8_t *payload, uint32_t size, size_t fds_n, struct message *m)
{
        uint64_t u;

        if (size != sizeof(u))
                return -EPROTO;
        memcpy(&u, payload, sizeof(u));
        if ((u & ~(FILE_INDEX_MASK | FILE_NO_FD)) || (u & FILE_INDEX_MASK) >= MESSAGE_QUEUES)
                return -EPROTO;
        m->file.index = (uint32_t)(u & FILE_INDEX_MASK);
        m->file.has_fd = !(u & FILE_NO_FD);
        return fds_n == m->file.has_fd ? 0 : -EPROTO;
}

static int parse_memory(const uint8_t *payload, uint32_t size, size_t fds_n, struct message *m)
{
        uint32_t n;

        if (size < sizeof(struct vhost_memory))
                return -EPROTO;
        memcpy(&n, payload, sizeof(n));
        if (n > MEMORY_REGIONS_MAX || size != sizeof(struct vhost_memory) + n * sizeof(struct message_mapping) ||
                fds_n != n)
                return -EPROTO;
        m->memory.n = n;
        memcpy(m->memory.regions, payload + sizeof(struct vhost_memory), n * sizeof(struct message_mapping));
        return 0;
}

/* The payload has room for what is asked; only its head says anything. */
static int parse_config(const uint8_t *payload, uint32_t size, struct message *m)
{
        struct config_head c;

        if (size < sizeof(c))
                return -EPROTO;
        memcpy(&c, payload, sizeof(c));
        if (c.size > MESSAGE_CONFIG_MAX || size != sizeof(c) + c.size)
                return -EPROTO;
        m->config.offset = c.offset;
        m->config.size = c.size;
        return 0;
}

int message_parse(const struct message_header *h, const uint8_t *payload, size_t fds_n, struct message *ret)
{
        const struct shape_of *s = find(h->request);
        struct message m = {.request = h->request, .need_reply = h->flags & MESSAGE_FLAG_NEED_REPLY};
        int r = -EPROTO;

        if (!s)
                return -EOPNOTSUPP;
        if (fds_n && s->shape != SHAPE_FILE && s->shape != SHAPE_MEMORY)
                return -EPROTO;
        switch (s->shape) {
        case SHAPE_NONE: r = h->size == 0 ? 0 : -EPROTO; break;
        case SHAPE_U64:
                if (h->size == sizeof(m.u64)) {
                        memcpy(&m.u64, payload, sizeof(m.u64));
                        r = 0;
                }
                break;
        case SHAPE_STATE: r = parse_state(payload, h->size, &m); break;
        case SHAPE_ADDR: r = parse_addr(payload, h->size, &m); break;
        case SHAPE_FILE: r = parse_file(payload, h->size, fds_n, &m); break;
        case SHAPE_MEMORY: r = parse_memory(payload, h->size, fds_n, &m); break;
        case SHAPE_CONFIG: r = parse_config(payload, h->size, &m); break;
        }
        if (r == 0)
                *ret = m;
        return r;
}
