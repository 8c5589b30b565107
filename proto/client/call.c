/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/client/client.h"
#include "proto/wire/codec.h"

#define RECEIVE_BYTES 16384u
#define CLOSE_NS      (100 * NSEC_PER_MSEC)

void client_call_init(struct client_call *call, int fd, uint64_t deadline_ns)
{
        *call = (struct client_call){.fd = fd, .deadline_ns = deadline_ns};
}

void client_call_done(struct client_call *call)
{
        frame_reader_done(&call->reader);
        free(call->bytes);
        *call = (struct client_call){.fd = -1};
}

static int wait_for(const struct client_call *call, short events)
{
        struct pollfd p = {.fd = call->fd, .events = events};

        for (;;) {
                uint64_t now_ns = clock_monotonic_ns();
                int timeout_ms = -1, n;

                if (call->deadline_ns != UINT64_MAX) {
                        uint64_t left_ms;

                        if (now_ns >= call->deadline_ns)
                                return -ETIMEDOUT;
                        left_ms = (call->deadline_ns - now_ns) / NSEC_PER_MSEC + 1;
                        timeout_ms = left_ms > 3600000 ? 3600000 : (int)left_ms;
                }
                n = poll(&p, 1, timeout_ms);
                if (n > 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
        }
}

static int send_all(const struct client_call *call, const uint8_t *p, size_t n)
{
        while (n) {
                ssize_t put = send(call->fd, p, n, MSG_NOSIGNAL);

                if (put >= 0) {
                        p += put;
                        n -= (size_t)put;
                } else if (errno == EAGAIN) {
                        int r = wait_for(call, POLLOUT);

                        if (r < 0)
                                return r;
                } else if (errno != EINTR) {
                        return -errno;
                }
        }
        return 0;
}

int client_call_send(struct client_call *call, const Wb__ToAgent *m)
{
        uint8_t *frame;
        size_t n;
        int r = codec_pack_to_agent(m, &frame, &n);

        if (r < 0)
                return r;
        r = send_all(call, frame, n);
        explicit_bzero(frame, n);
        free(frame);
        return r;
}

/* Refills the empty receive buffer. */
static int refill(struct client_call *call)
{
        if (!call->bytes) {
                call->bytes = malloc(RECEIVE_BYTES);
                if (!call->bytes)
                        return -ENOMEM;
        }
        for (;;) {
                ssize_t got = recv(call->fd, call->bytes, RECEIVE_BYTES, 0);

                if (got > 0) {
                        call->at = 0;
                        call->n = (size_t)got;
                        return 0;
                }
                if (got == 0)
                        return -EPIPE;
                if (errno == EAGAIN) {
                        int r = wait_for(call, POLLIN);

                        if (r < 0)
                                return r;
                } else if (errno != EINTR) {
                        return -errno;
                }
        }
}

int client_call_receive(struct client_call *call, Wb__FromAgent **ret)
{
        for (;;) {
                const uint8_t *p = call->bytes + call->at, *payload;
                size_t n = call->n - call->at, payload_n;
                int r = call->bytes ? frame_read(&call->reader, &p, &n, &payload, &payload_n) : FRAME_E_MORE;

                call->at = call->n - n;
                if (r == FRAME_E_MORE) {
                        r = refill(call);
                        if (r < 0)
                                return r;
                        continue;
                }
                if (r < 0)
                        return r == -EMSGSIZE ? -EBADMSG : r;
                r = codec_unpack_from_agent(payload, payload_n, ret);
                return r > 0 ? -EBADMSG : r;
        }
}

/*
 * The agent closes the conversation behind its answer. Waiting for that (but not for long) means that whoever asks
 * finds the agent as it was before.
 */
static void await_close(struct client_call *call)
{
        Wb__FromAgent *more = NULL;
        uint64_t limit_ns = clock_monotonic_ns() + CLOSE_NS;

        if (limit_ns < call->deadline_ns)
                call->deadline_ns = limit_ns;
        if (client_call_receive(call, &more) == 0)
                codec_free_from_agent(more);
}

int client_ask(int fd, uint64_t deadline_ns, const Wb__ToAgent *question, Wb__FromAgent **ret_answer)
{
        struct client_call call;
        int r;

        client_call_init(&call, fd, deadline_ns);
        r = client_call_send(&call, question);
        /* A refusal may come before the whole question was taken. */
        if (r == 0 || r == -EPIPE || r == -ECONNRESET)
                r = client_call_receive(&call, ret_answer);
        if (r == 0)
                await_close(&call);
        client_call_done(&call);
        return r;
}
