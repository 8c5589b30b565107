/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/qmp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/io.h"

struct qmp {
        int fd;
        size_t n; /* bytes in the buffer */
        char buffer[QMP_LINE_MAX_BYTES];
};

int qmp_new(int fd, struct qmp **ret)
{
        struct qmp *q = calloc(1, sizeof(*q));
        int r = q ? io_set_nonblock(fd) : -ENOMEM;

        if (r < 0) {
                free(q);
                close_fd(fd);
                return r;
        }
        q->fd = fd;
        *ret = q;
        return 0;
}

void qmp_free(struct qmp *q)
{
        close_fd(q->fd);
        free(q);
}

int qmp_fd(const struct qmp *q)
{
        return q->fd;
}

int qmp_send(struct qmp *q, const char *command, json_t *arguments, int fd)
{
        json_t *whole = arguments ? json_pack("{s:s, s:o}", "execute", command, "arguments", arguments)
                                  : json_pack("{s:s}", "execute", command);
        char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
        size_t sent = 0;
        int r = text ? 0 : -ENOMEM;

        if (r == 0 && fd >= 0) {
                ssize_t n = io_send_fds(q->fd, text, 1, &fd, 1);

                sent = 1;
                r = n < 0 ? (int)n : 0;
        }
        if (r == 0)
                r = io_write_full(q->fd, text + sent, strlen(text + sent));
        if (r == 0)
                r = io_write_full(q->fd, "\n", 1);
        free(text);
        json_decref(whole);
        return r;
}

/* The line at the beginning of the buffer, if a whole one is there. */
static int take_line(struct qmp *q, json_t **ret)
{
        char *newline = memchr(q->buffer, '\n', q->n);
        size_t n;
        json_t *object;

        if (!newline)
                return q->n == sizeof(q->buffer) ? -EPROTO : QMP_E_AGAIN;
        n = (size_t)(newline - q->buffer);
        object = json_loadb(q->buffer, n, 0, NULL);
        memmove(q->buffer, newline + 1, q->n - n - 1);
        q->n -= n + 1;
        if (!json_is_object(object)) {
                json_decref(object);
                return -EPROTO;
        }
        *ret = object;
        return 0;
}

int qmp_receive(struct qmp *q, json_t **ret)
{
        int r;

        while ((r = take_line(q, ret)) == QMP_E_AGAIN) {
                ssize_t n = read(q->fd, q->buffer + q->n, sizeof(q->buffer) - q->n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? QMP_E_AGAIN : errno == ECONNRESET ? -EPIPE : -errno;
                if (n == 0)
                        return -EPIPE;
                q->n += (size_t)n;
        }
        return r;
}
