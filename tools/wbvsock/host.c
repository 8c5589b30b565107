/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"

#define WORD         "CONNECT "
#define LINE_MAX_LEN 32u /* the word, ten digits, the newline, and some */

#define GREETING_S      30
#define ACCEPT_ROUND    64
#define ACCEPT_PAUSE_MS 100

/* A connection that has not said its line. */
struct greeting {
        struct host *host;
        LIST_ENTRY(greeting) link;
        int fd;
        struct event event;
};

LIST_HEAD(greeting_list, greeting);

struct host {
        struct event_base *base;
        struct device *device;
        int fd;
        struct event accept_event;
        struct event resume_event; /* after a pause for lack of descriptors */
        struct greeting_list greetings;
        uint32_t n;
        uint32_t most;
};

int host_parse_line(const char *bytes, size_t n, uint32_t *ret_port, size_t *ret_n)
{
        size_t word_n = strlen(WORD);
        const char *end = memchr(bytes, '\n', n);
        char digits[LINE_MAX_LEN];
        size_t digits_n;
        uint64_t port;

        if (memcmp(bytes, WORD, n < word_n ? n : word_n) != 0)
                return -EINVAL;
        if (!end)
                return n < LINE_MAX_LEN ? -EAGAIN : -EINVAL;
        if (end < bytes + word_n)
                return -EINVAL;
        digits_n = (size_t)(end - bytes) - word_n;
        if (digits_n >= sizeof(digits))
                return -EINVAL;
        memcpy(digits, bytes + word_n, digits_n);
        digits[digits_n] = '\0';
        if (strlen(digits) != digits_n || parse_u64(digits, UINT32_MAX, &port) < 0)
                return -EINVAL;
        *ret_port = (uint32_t)port;
        *ret_n = (size_t)(end - bytes) + 1;
        return 0;
}

static void greeting_free(struct greeting *g)
{
        event_del(&g->event);
        LIST_REMOVE(g, link);
        g->host->n--;
        close_fd(g->fd);
        free(g);
}

static void on_greeting(evutil_socket_t fd, short what, void *arg)
{
        struct greeting *g = arg;
        char line[LINE_MAX_LEN];
        uint32_t port = 0;
        size_t line_n = 0;
        ssize_t n;
        int r;

        if (what & EV_TIMEOUT) {
                greeting_free(g);
                return;
        }
        /* What stands behind the line is the guest's and stays in the socket. */
        n = recv(fd, line, sizeof(line), MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        r = n > 0 ? host_parse_line(line, (size_t)n, &port, &line_n) : -EINVAL;
        if (r == -EAGAIN) {
                /* An unfinished line would wake us again and again: from here on each byte that comes is an edge. */
                return;
        }
        if (r == 0 && recv(fd, line, line_n, MSG_DONTWAIT) == (ssize_t)line_n) {
                event_del(&g->event);
                (void)device_connect(g->host->device, port, steal_fd(&g->fd));
        }
        greeting_free(g);
}

/* Takes fd. */
static void greet(struct host *h, int fd)
{
        static const struct timeval most_time = {.tv_sec = GREETING_S};
        struct greeting *g = h->n < h->most ? calloc(1, sizeof(*g)) : NULL;

        if (!g) {
                close_fd(fd);
                return;
        }
        g->host = h;
        g->fd = fd;
        LIST_INSERT_HEAD(&h->greetings, g, link);
        h->n++;
        event_assign(&g->event, h->base, fd, EV_READ | EV_ET | EV_PERSIST, on_greeting, g);
        event_add(&g->event, &most_time);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
        struct host *h = arg;

        (void)fd;
        (void)what;
        event_add(&h->accept_event, NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
        static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
        struct host *h = arg;

        (void)what;
        for (int i = 0; i < ACCEPT_ROUND; i++) {
                /* cppcheck-suppress nullPointer ; accept(2): no address is wanted */
                int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (client >= 0) {
                        greet(h, client);
                        continue;
                }
                if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                        log_write_errno(LOG_LEVEL_WARNING, -errno, "cannot take the host's connections for a moment");
                        event_del(&h->accept_event);
                        event_add(&h->resume_event, &pause);
                }
                return;
        }
}

int host_new(struct event_base *base, int listen_fd, uint32_t most, struct device *device, struct host **ret)
{
        struct host *h = calloc(1, sizeof(*h));

        if (!h) {
                close_fd(listen_fd);
                return -ENOMEM;
        }
        h->base = base;
        h->device = device;
        h->fd = listen_fd;
        h->most = most;
        event_assign(&h->accept_event, base, listen_fd, EV_READ | EV_PERSIST, on_accept, h);
        evtimer_assign(&h->resume_event, base, on_resume, h);
        event_add(&h->accept_event, NULL);
        *ret = h;
        return 0;
}

void host_free(struct host *h)
{
        while (!LIST_EMPTY(&h->greetings))
                greeting_free(LIST_FIRST(&h->greetings));
        event_del(&h->accept_event);
        event_del(&h->resume_event);
        close_fd(h->fd);
        free(h);
}
