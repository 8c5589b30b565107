/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/wire/codec.h"

#define LINGERING_MS 5000 /* a host that sends a large file looks for an answer every now and then */
#define DETAIL_BYTES 1024

int talk_send(struct talk *t, const Wb__FromAgent *m)
{
        uint8_t *frame;
        size_t n;
        int r = codec_pack_from_agent(m, &frame, &n);

        if (r < 0)
                return r;
        r = io_write_full(t->fd, frame, n);
        free(frame);
        return r;
}

static int refill(struct talk *t)
{
        for (;;) {
                ssize_t got = recv(t->fd, t->bytes, sizeof(t->bytes), 0);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got < 0 ? -errno : -EPIPE;
                t->at = 0;
                t->n = (size_t)got;
                return 0;
        }
}

int talk_receive(struct talk *t, Wb__ToAgent **ret)
{
        for (;;) {
                const uint8_t *p = t->bytes + t->at, *payload;
                size_t n = t->n - t->at, payload_n;
                int r = n ? frame_read(&t->reader, &p, &n, &payload, &payload_n) : FRAME_E_MORE;

                t->at = t->n - n;
                if (r == 0)
                        return codec_unpack_to_agent(payload, payload_n, ret) == 0 ? 0 : -EBADMSG;
                if (r < 0)
                        return r == -EMSGSIZE ? -EBADMSG : r;
                r = refill(t);
                if (r < 0)
                        return r;
        }
}

int talk_send_ready(struct talk *t)
{
        Wb__FileReady ready = WB__FILE_READY__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        m.body_case = WB__FROM_AGENT__BODY_FILE_READY;
        m.file_ready = &ready;
        return talk_send(t, &m);
}

int talk_send_done(struct talk *t, uint64_t entries, uint64_t bytes, uint64_t skipped)
{
        Wb__FileDone done = WB__FILE_DONE__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        done.entries = entries;
        done.bytes = bytes;
        done.skipped = skipped;
        m.body_case = WB__FROM_AGENT__BODY_FILE_DONE;
        m.file_done = &done;
        return talk_send(t, &m);
}

/* Bytes of a path as text that a message may hold. */
static void escape(const char *from, size_t n, char *to, size_t room)
{
        size_t k = 0;

        for (size_t i = 0; i < n && k + 5 < room; i++) {
                unsigned char b = (unsigned char)from[i];

                k += (size_t)sprintf(to + k, b >= 0x20 && b < 0x7f ? "%c" : "\\x%02x", b);
        }
        to[k] = '\0';
}

static void throw_away(struct talk *t)
{
        uint64_t end_ns = clock_monotonic_ns() + LINGERING_MS * NSEC_PER_MSEC;
        struct pollfd p = {.fd = t->fd, .events = POLLIN};

        while (clock_monotonic_ns() < end_ns) {
                if (poll(&p, 1, LINGERING_MS) <= 0 || recv(t->fd, t->bytes, sizeof(t->bytes), MSG_DONTWAIT) <= 0)
                        return;
        }
}

void talk_fail(struct talk *t, const char *reason, const char *detail)
{
        char text[DETAIL_BYTES];
        Wb__Error error = WB__ERROR__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        escape(detail, strlen(detail), text, sizeof(text));
        error.reason = (char *)(uintptr_t)reason;
        error.detail = text;
        m.body_case = WB__FROM_AGENT__BODY_ERROR;
        m.error = &error;
        if (talk_send(t, &m) < 0)
                return;
        (void)shutdown(t->fd, SHUT_WR);
        throw_away(t);
}

int talk_fail_errno(struct talk *t, int error, const char *path, size_t path_n)
{
        const char *text = error == -ELOOP ? "a symbolic link that others than root may have made is not followed"
                                           : strerrordesc_np(-error);
        char detail[DETAIL_BYTES / 4];

        if (error == -EPIPE || error == -ECONNRESET)
                return FILES_E_SAID;
        if (path_n > 160)
                path_n = 160;
        (void)snprintf(detail, sizeof(detail), "%.*s: %s", (int)path_n, path, text ? text : "it failed");
        talk_fail(t, error == -EBADMSG ? "protocol" : tree_error_reason(error), detail);
        return FILES_E_SAID;
}
