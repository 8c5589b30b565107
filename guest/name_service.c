/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/name_service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/host_dial.h"
#include "proto/base/cleanup.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/limits.h"

#define DIAL_LIMIT_MS 2000
#define QUEUE_BYTES   (64u * 1024u)

struct name_service {
        struct event_base *base;
        const struct transport *transport;
        const struct name_service_handler *handler;
        void *userdata;
        int fd; /* -1: not connected */
        struct host_dial dial;
        bool dialling;
        struct event readable, writable;
        struct frame_reader reader;
        size_t from, to; /* of queue: what is to be written */
        uint8_t queue[QUEUE_BYTES];
};

static void disconnect(struct name_service *s)
{
        if (s->fd >= 0) {
                (void)event_del(&s->readable);
                (void)event_del(&s->writable);
        }
        s->fd = close_fd(s->fd);
        frame_reader_done(&s->reader);
        s->reader = (struct frame_reader){0};
        s->from = s->to = 0;
}

static void lose(struct name_service *s)
{
        disconnect(s);
        s->handler->lost(s->userdata);
}

/* 0, or a negative errno: the connection is of no use any more. */
static int flush(struct name_service *s)
{
        while (s->from < s->to) {
                ssize_t put = send(s->fd, s->queue + s->from, s->to - s->from, MSG_NOSIGNAL);

                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0 && errno == EAGAIN)
                        return event_add(&s->writable, NULL) < 0 ? -ENOMEM : 0;
                if (put < 0)
                        return -errno;
                s->from += (size_t)put;
        }
        s->from = s->to = 0;
        return 0;
}

static void on_writable(evutil_socket_t fd, short events, void *userdata)
{
        struct name_service *s = userdata;

        (void)fd;
        (void)events;
        if (flush(s) < 0)
                lose(s);
}

static int take_frame(struct name_service *s, const uint8_t *payload, size_t n)
{
        Wb__ServiceAnswer *m;
        struct name_verdict verdict;

        if (codec_unpack_service_answer(payload, n, &m) != 0)
                return -EBADMSG;
        verdict = (struct name_verdict){
                .allowed = m->name_answer->allowed, .reason = m->name_answer->reason, .detail = m->name_answer->detail};
        s->handler->answered(s->userdata, m->number, &verdict);
        codec_free_service_answer(m);
        return 0;
}

static int take_input(struct name_service *s)
{
        uint8_t bytes[WB_SERVICE_FRAME_MAX_BYTES];
        const uint8_t *p = bytes, *payload;
        ssize_t got = recv(s->fd, bytes, sizeof(bytes), 0);
        size_t n, payload_n;
        int r = 0;

        if (got < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (got == 0)
                return -EPIPE;
        n = (size_t)got;
        while (r == 0) {
                r = frame_read(&s->reader, &p, &n, &payload, &payload_n);
                if (r == 0)
                        r = payload_n > WB_SERVICE_FRAME_MAX_BYTES ? -EMSGSIZE : take_frame(s, payload, payload_n);
        }
        if (r == FRAME_E_MORE && s->reader.used > FRAME_HEADER_BYTES + WB_SERVICE_FRAME_MAX_BYTES)
                r = -EMSGSIZE;
        return r == FRAME_E_MORE ? 0 : r;
}

static void on_readable(evutil_socket_t fd, short events, void *userdata)
{
        struct name_service *s = userdata;

        (void)fd;
        (void)events;
        if (take_input(s) < 0)
                lose(s);
}

static void on_dialled(struct host_dial *d, int result)
{
        struct name_service *s = (struct name_service *)(void *)((char *)d - offsetof(struct name_service, dial));

        s->dialling = false;
        if (result < 0) {
                lose(s);
                return;
        }
        s->fd = result;
        (void)event_assign(&s->readable, s->base, s->fd, EV_READ | EV_PERSIST, on_readable, s);
        (void)event_assign(&s->writable, s->base, s->fd, EV_WRITE, on_writable, s);
        if (event_add(&s->readable, NULL) < 0 || flush(s) < 0)
                lose(s);
}

static int queue(struct name_service *s, const Wb__ServiceRequest *m)
{
        _cleanup_free_ uint8_t *frame = NULL;
        size_t n;
        int r = codec_pack_service_request(m, &frame, &n);

        if (r < 0)
                return r;
        if (n > QUEUE_BYTES - s->to)
                return -ENOBUFS;
        memcpy(s->queue + s->to, frame, n);
        s->to += n;
        return 0;
}

/* Says who is there, so that the host's log tells which agent's names come now. */
static int dial(struct name_service *s)
{
        Wb__ServiceEvent event = WB__SERVICE_EVENT__INIT;
        Wb__ServiceRequest m = WB__SERVICE_REQUEST__INIT;
        int r;

        s->dial = (struct host_dial){
                .base = s->base, .transport = s->transport, .port = WB_PORT_SERVICE, .done = on_dialled};
        r = host_dial_start(&s->dial, DIAL_LIMIT_MS);
        if (r < 0)
                return r;
        s->dialling = true;
        event.name = (char *)(uintptr_t) "hello";
        event.detail = (char *)(uintptr_t) "wbagent " WB_VERSION;
        m.body_case = WB__SERVICE_REQUEST__BODY_EVENT;
        m.event = &event;
        return queue(s, &m);
}

int name_service_new(struct event_base *base, const struct transport *transport,
        const struct name_service_handler *handler, void *userdata, struct name_service **ret)
{
        struct name_service *s = malloc(sizeof(*s)); /* the queue's pages come as they are used */

        if (!s)
                return -ENOMEM;
        s->base = base;
        s->transport = transport;
        s->handler = handler;
        s->userdata = userdata;
        s->fd = -1;
        s->dialling = false;
        s->reader = (struct frame_reader){0};
        s->from = s->to = 0;
        *ret = s;
        return 0;
}

int name_service_ask(struct name_service *s, uint32_t number, const char *name, uint16_t qtype)
{
        Wb__NameQuery query = WB__NAME_QUERY__INIT;
        Wb__ServiceRequest m = WB__SERVICE_REQUEST__INIT;
        int r = s->fd < 0 && !s->dialling ? dial(s) : 0;

        if (r < 0)
                return r;
        query.name = (char *)(uintptr_t)name;
        query.qtype = qtype;
        m.number = number;
        m.body_case = WB__SERVICE_REQUEST__BODY_NAME_QUERY;
        m.name_query = &query;
        r = queue(s, &m);
        if (r < 0 || s->fd < 0)
                return r;
        r = flush(s);
        if (r < 0) /* said by the loop, where the end of the connection is seen too */
                (void)shutdown(s->fd, SHUT_RDWR);
        return 0;
}
