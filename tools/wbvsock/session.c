/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/session.h"

#include <endian.h>
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "tools/wbvsock/mapping.h"
#include "tools/wbvsock/message.h"

/* vhost-user.rst: VHOST_USER_F_PROTOCOL_FEATURES, and the protocol's own features. */
#define FEATURE_PROTOCOL   30
#define PROTOCOL_REPLY_ACK 3
#define PROTOCOL_CONFIG    9

#define FEATURES                                                                                                       \
        (UINT64_C(1) << VIRTIO_F_VERSION_1 | UINT64_C(1) << FEATURE_PROTOCOL |                                         \
                UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX | UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC)
#define PROTOCOL_FEATURES (UINT64_C(1) << PROTOCOL_REPLY_ACK | UINT64_C(1) << PROTOCOL_CONFIG)

struct ring {
        struct session *session;
        struct virtqueue_setup setup; /* base: kept up to date when the ring stops */
        struct virtqueue queue;
        bool has_addr;
        bool enabled;
        int kick_fd;
        int call_fd;
        int err_fd;
        struct event kick_event; /* while there is a kick_fd */
};

struct session {
        struct session_setup setup;
        struct device *device;
        int fd;
        struct event event;
        uint64_t features;
        uint64_t protocol_features;
        bool fresh; /* what runs next has nothing to do with what ran before */
        struct mapping mapping;
        struct ring rings[DEVICE_QUEUES];

        /* The message that is coming in. */
        uint8_t bytes[MESSAGE_HEADER_BYTES + MESSAGE_PAYLOAD_MAX];
        size_t bytes_n;
        int fds[MEMORY_REGIONS_MAX];
        size_t fds_n;
};

static bool has_feature(const struct session *s, unsigned bit)
{
        return s->features >> bit & 1;
}

static void close_fds(struct session *s)
{
        for (size_t i = 0; i < s->fds_n; i++)
                close_fd(s->fds[i]);
        s->fds_n = 0;
}

/* The only descriptor of a message that has one, or -1. */
static int take_fd(struct session *s)
{
        int fd = s->fds_n ? s->fds[0] : -1;

        s->fds_n = 0;
        return fd;
}

static void pause_rings(struct session *s)
{
        if (!device_is_running(s->device))
                return;
        device_pause(s->device);
        for (size_t i = 0; i < DEVICE_QUEUES; i++)
                s->rings[i].setup.base = s->rings[i].queue.next_avail;
        log_debug("the device is paused");
}

static bool is_ready(const struct session *s, const struct ring *ring)
{
        /* Without PROTOCOL_FEATURES a ring needs no enabling. */
        return ring->has_addr && ring->setup.size && ring->kick_fd >= 0 &&
               (ring->enabled || !has_feature(s, FEATURE_PROTOCOL));
}

static int init_ring(struct session *s, struct ring *ring)
{
        ring->setup.event_idx = has_feature(s, VIRTIO_RING_F_EVENT_IDX);
        ring->setup.indirect = has_feature(s, VIRTIO_RING_F_INDIRECT_DESC);
        return virtqueue_init(&ring->queue, &s->mapping.memory, &ring->setup);
}

/* Starts the device if nothing is missing any more. */
static int start_rings(struct session *s)
{
        struct ring *rx = &s->rings[DEVICE_RX], *tx = &s->rings[DEVICE_TX];
        int r;

        if (device_is_running(s->device) || !is_ready(s, rx) || !is_ready(s, tx))
                return 0;
        r = init_ring(s, rx);
        if (r == 0)
                r = init_ring(s, tx);
        if (r < 0)
                return log_errno(r, "the rings do not lie in the guest's memory");
        if (s->fresh || (rx->setup.base == 0 && tx->setup.base == 0))
                device_drop(s->device);
        s->fresh = false;
        log_debug("the device runs, from %u and %u", rx->setup.base, tx->setup.base);
        device_run(s->device, &rx->queue, &tx->queue);
        return 0;
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
        struct ring *ring = arg;
        uint64_t count;

        (void)what;
        if (read(fd, &count, sizeof(count)) <= 0 && errno != EAGAIN && errno != EINTR) {
                event_del(&ring->kick_event);
                return;
        }
        device_pump(ring->session->device);
}

static void close_kick(struct ring *ring)
{
        if (ring->kick_fd < 0)
                return;
        event_del(&ring->kick_event);
        ring->kick_fd = close_fd(ring->kick_fd);
}

static int set_kick(struct session *s, struct ring *ring)
{
        int r;

        pause_rings(s);
        close_kick(ring);
        ring->kick_fd = take_fd(s);
        if (ring->kick_fd < 0)
                return 0;
        r = io_set_nonblock(ring->kick_fd);
        if (r < 0)
                return r;
        event_assign(&ring->kick_event, s->setup.base, ring->kick_fd, EV_READ | EV_PERSIST, on_kick, ring);
        return event_add(&ring->kick_event, NULL) < 0 ? -EINVAL : 0;
}

static int set_signal(struct session *s, int *fd)
{
        close_fd(*fd);
        *fd = take_fd(s);
        return *fd < 0 ? 0 : io_set_nonblock(*fd);
}

static void signal_fd(int fd)
{
        uint64_t one = 1;

        /* A full eventfd is one that has been signalled. */
        if (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
                log_write_errno(LOG_LEVEL_DEBUG, -errno, "cannot signal the guest");
}

void session_notify(struct session *s, enum device_queue which)
{
        signal_fd(s->rings[which].call_fd);
}

void session_report_broken(struct session *s, enum device_queue which)
{
        log_warning("the guest broke the %s queue: no vsock until its driver starts anew",
                which == DEVICE_RX ? "rx" : "tx");
        signal_fd(s->rings[which].err_fd);
}

static int reply(struct session *s, uint32_t request, const void *payload, uint32_t size)
{
        struct message_header h = {
                .request = request, .flags = MESSAGE_FLAG_VERSION | MESSAGE_FLAG_REPLY, .size = size};
        struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)payload, size}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t put = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (put < 0)
                return -errno;
        /* A VMM that leaves replies unread until the socket is full is broken. */
        return (size_t)put == sizeof(h) + size ? 0 : -EPROTO;
}

static int reply_u64(struct session *s, uint32_t request, uint64_t value)
{
        return reply(s, request, &value, sizeof(value));
}

/* The device's configuration is the guest's CID, eight bytes. What is asked beyond is answered with an empty payload:
 * an error. */
static int reply_config(struct session *s, const struct message *m)
{
        struct {
                uint32_t offset, size, flags;
                uint8_t bytes[sizeof(uint64_t)];
        } answer = {.offset = m->config.offset, .size = m->config.size};
        uint64_t cid = htole64(s->setup.guest_cid);

        if (m->config.offset > sizeof(cid) || m->config.size > sizeof(cid) - m->config.offset)
                return reply(s, m->request, NULL, 0);
        memcpy(answer.bytes, (uint8_t *)&cid + m->config.offset, m->config.size);
        return reply(s, m->request, &answer, (uint32_t)offsetof(__typeof__(answer), bytes) + m->config.size);
}

static int set_features(uint64_t asked, uint64_t offered, uint64_t *features)
{
        if (asked & ~offered)
                return -EPROTO;
        *features = asked;
        return 0;
}

static int set_memory(struct session *s, const struct message *m)
{
        pause_rings(s);
        return mapping_replace(&s->mapping, m->memory.regions, s->fds, m->memory.n);
}

static int stop_ring(struct session *s, struct ring *ring, const struct message *m)
{
        struct {
                uint32_t index, base;
        } answer = {.index = m->state.index};

        pause_rings(s);
        close_kick(ring);
        answer.base = ring->setup.base;
        return reply(s, m->request, &answer, sizeof(answer));
}

static int set_size(struct session *s, const struct message *m)
{
        pause_rings(s);
        s->rings[m->state.index].setup.size = m->state.value;
        return 0;
}

static int set_base(struct session *s, const struct message *m)
{
        struct ring *ring = &s->rings[m->state.index];

        pause_rings(s);
        if (m->state.value > UINT16_MAX)
                return -EPROTO;
        if (m->state.value != ring->setup.base)
                s->fresh = true;
        ring->setup.base = (uint16_t)m->state.value;
        return 0;
}

/* Enabling what is enabled, as QEMU does, stops nothing. */
static int set_enabled(struct session *s, const struct message *m)
{
        if (m->state.value == 0)
                pause_rings(s);
        s->rings[m->state.index].enabled = m->state.value != 0;
        return 0;
}

static int set_addr(struct session *s, const struct message *m)
{
        struct ring *ring = &s->rings[m->addr.index];

        pause_rings(s);
        ring->setup.desc_addr = m->addr.desc_addr;
        ring->setup.avail_addr = m->addr.avail_addr;
        ring->setup.used_addr = m->addr.used_addr;
        ring->has_addr = true;
        return 0;
}

/* *ret_replied: the request has an answer of its own, so that it gets no acknowledgement. */
static int handle(struct session *s, const struct message *m, bool *ret_replied)
{
        *ret_replied = false;
        switch (m->request) {
        case MESSAGE_GET_FEATURES: *ret_replied = true; return reply_u64(s, m->request, FEATURES);
        case MESSAGE_SET_FEATURES: pause_rings(s); return set_features(m->u64, FEATURES, &s->features);
        case MESSAGE_GET_PROTOCOL_FEATURES: *ret_replied = true; return reply_u64(s, m->request, PROTOCOL_FEATURES);
        case MESSAGE_SET_PROTOCOL_FEATURES: return set_features(m->u64, PROTOCOL_FEATURES, &s->protocol_features);
        case MESSAGE_GET_QUEUE_NUM: *ret_replied = true; return reply_u64(s, m->request, DEVICE_QUEUES);
        case MESSAGE_GET_CONFIG: *ret_replied = true; return reply_config(s, m);
        case MESSAGE_SET_OWNER:
        case MESSAGE_RESET_OWNER:
                pause_rings(s);
                s->fresh = true;
                return 0;
        case MESSAGE_SET_MEM_TABLE: return set_memory(s, m);
        case MESSAGE_SET_VRING_NUM: return set_size(s, m);
        case MESSAGE_SET_VRING_BASE: return set_base(s, m);
        case MESSAGE_SET_VRING_ENABLE: return set_enabled(s, m);
        case MESSAGE_GET_VRING_BASE: *ret_replied = true; return stop_ring(s, &s->rings[m->state.index], m);
        case MESSAGE_SET_VRING_ADDR: return set_addr(s, m);
        case MESSAGE_SET_VRING_KICK: return set_kick(s, &s->rings[m->file.index]);
        case MESSAGE_SET_VRING_CALL: return set_signal(s, &s->rings[m->file.index].call_fd);
        case MESSAGE_SET_VRING_ERR: return set_signal(s, &s->rings[m->file.index].err_fd);
        }
        return -EPROTO;
}

/* One whole message. A negative errno ends the session. */
static int serve(struct session *s, const struct message_header *h)
{
        struct message m;
        bool replied = false;
        int r = message_parse(h, s->bytes + MESSAGE_HEADER_BYTES, s->fds_n, &m);
        int sent = 0;

        if (r == 0)
                r = handle(s, &m, &replied);
        if (r == 0)
                r = start_rings(s);
        if (r < 0)
                log_write_errno(
                        LOG_LEVEL_WARNING, r, "the VMM's message %u (%s) failed", h->request, message_name(h->request));
        close_fds(s);

        if (replied || !(h->flags & MESSAGE_FLAG_NEED_REPLY) || !(s->protocol_features >> PROTOCOL_REPLY_ACK & 1))
                return r;
        sent = reply_u64(s, h->request, r < 0);
        return r == -EPROTO ? r : sent;
}

/* How many bytes are missing until something can be done; -EPROTO if it never can. */
static ssize_t missing(const struct session *s, struct message_header *h)
{
        int r;

        if (s->bytes_n < MESSAGE_HEADER_BYTES)
                return (ssize_t)(MESSAGE_HEADER_BYTES - s->bytes_n);
        r = message_header_parse(s->bytes, h);
        if (r < 0)
                return r;
        return (ssize_t)(MESSAGE_HEADER_BYTES + h->size - s->bytes_n);
}

/* Reads what is there, up to the end of one message. 0, 1: a message is whole, -EAGAIN, or what ends the session. */
static int receive(struct session *s, struct message_header *h)
{
        size_t fds_n = MEMORY_REGIONS_MAX - s->fds_n;
        ssize_t n = missing(s, h);

        if (n < 0)
                return (int)n;
        n = io_recv_fds(s->fd, s->bytes + s->bytes_n, (size_t)n, s->fds + s->fds_n, &fds_n);
        if (n < 0)
                return (int)n;
        s->fds_n += fds_n;
        if (n == 0)
                return -EPIPE;
        s->bytes_n += (size_t)n;
        n = missing(s, h);
        return n < 0 ? (int)n : n == 0;
}

static void end(struct session *s, int error)
{
        if (error != -EPIPE && error != -ECONNRESET)
                log_errno(error, "ending the conversation with the VMM");
        event_del(&s->event);
        s->setup.ended(s->setup.arg);
}

static void on_message(evutil_socket_t fd, short what, void *arg)
{
        struct session *s = arg;
        struct message_header h = {0};
        int r = receive(s, &h);

        (void)fd;
        (void)what;
        if (r == 1) {
                s->bytes_n = 0;
                r = serve(s, &h);
        }
        if (r < 0 && r != -EAGAIN)
                end(s, r);
}

int session_new(const struct session_setup *setup, int fd, struct device *device, struct session **ret)
{
        struct session *s = calloc(1, sizeof(*s));

        if (!s) {
                close_fd(fd);
                return -ENOMEM;
        }
        s->setup = *setup;
        s->device = device;
        s->fd = fd;
        s->fresh = true;
        for (size_t i = 0; i < DEVICE_QUEUES; i++)
                s->rings[i] = (struct ring){.session = s, .kick_fd = -1, .call_fd = -1, .err_fd = -1};
        event_assign(&s->event, setup->base, fd, EV_READ | EV_PERSIST, on_message, s);
        event_add(&s->event, NULL);
        *ret = s;
        return 0;
}

void session_free(struct session *s)
{
        device_pause(s->device);
        device_drop(s->device);
        for (size_t i = 0; i < DEVICE_QUEUES; i++) {
                close_kick(&s->rings[i]);
                close_fd(s->rings[i].call_fd);
                close_fd(s->rings[i].err_fd);
        }
        event_del(&s->event);
        close_fds(s);
        mapping_done(&s->mapping);
        close_fd(s->fd);
        free(s);
}

bool session_is_over(const struct session *s)
{
        struct pollfd p = {.fd = s->fd};

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}
