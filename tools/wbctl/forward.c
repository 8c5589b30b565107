/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/target.h"

#define LINKS_MAX 128       /* as many as the agent takes; the rest wait in the backlog */
#define BACKLOG   SOMAXCONN /* a kernel whose backlog is full resets, sooner or later, what it has accepted already */
#define PAUSE_MS  100       /* after accept() failed for want of descriptors or memory */

struct forward_options {
        struct target_options target;
        uint64_t connect_ms;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct forward_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct forward_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
};

static const struct option_table table = {
        .usage = "wbctl forward " TARGET_USAGE " [ADDRESS:]HOSTPORT:GUESTPORT",
        .summary =
                "Carries connections to a port here (of 127.0.0.1, if no ADDRESS is given) to a port of the guest's\n"
                "127.0.0.1, until it is interrupted.",
        .example = "wbctl forward --vm demo 8080:80",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

struct listener {
        struct forward_links links; /* first: freed() is given it */
        int fd;
        struct event acceptable, pause, interrupt, terminate;
};

/* ---- accepting */

static void watch(struct listener *l)
{
        if (l->links.n < LINKS_MAX)
                (void)event_add(&l->acceptable, NULL);
        else
                (void)event_del(&l->acceptable);
}

static void on_freed(struct forward_links *links)
{
        watch((struct listener *)links);
}

static void on_pause_ended(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        watch(userdata);
}

static void on_acceptable(evutil_socket_t fd, short events, void *userdata)
{
        struct listener *l = userdata;
        // cppcheck-suppress nullPointer ; accept(2): the address may be left out
        int taken = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int on = 1;

        (void)events;
        if (taken < 0) {
                if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                        (void)event_del(&l->acceptable);
                        (void)evtimer_add(&l->pause, &(struct timeval){.tv_usec = PAUSE_MS * 1000});
                }
                return;
        }
        (void)setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (forward_link_new(&l->links, taken) < 0)
                fprintf(stderr, "wbctl: no memory for a connection\n");
        watch(l);
}

static void on_signal(evutil_socket_t number, short events, void *userdata)
{
        struct listener *l = userdata;

        (void)number;
        (void)events;
        (void)event_base_loopbreak(l->links.base);
}

/* ---- the command line */

struct place {
        char address[INET_ADDRSTRLEN];
        uint16_t host_port, guest_port;
};

/* "8080:80" or "0.0.0.0:8080:80". */
static int parse_place(const char *text, struct place *ret)
{
        const char *last = strrchr(text, ':'), *before = last ? memrchr(text, ':', (size_t)(last - text)) : NULL;
        const char *host = before ? before + 1 : text;
        struct in_addr address;

        if (!last || parse_port(host, (size_t)(last - host), &ret->host_port) < 0 ||
                parse_port(last + 1, strlen(last + 1), &ret->guest_port) < 0)
                return -EINVAL;
        (void)snprintf(ret->address, sizeof(ret->address), "%.*s", before ? (int)(before - text) : 9,
                before ? text : "127.0.0.1");
        if (before && (size_t)(before - text) >= sizeof(ret->address))
                return -EINVAL;
        return inet_pton(AF_INET, ret->address, &address) == 1 ? 0 : -EINVAL;
}

static int open_listener(const struct place *place, int *ret_fd)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(place->host_port)};
        int on = 1;

        (void)inet_pton(AF_INET, place->address, &at.sin_addr);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
                bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, BACKLOG) < 0) {
                fprintf(stderr, "wbctl: cannot listen on %s:%u: %s\n", place->address, place->host_port,
                        strerrordesc_np(errno));
                return EXIT_FAILED;
        }
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* Connections that are open when it ends are cut by the process's end. */
static int serve(const struct forward_options *o, const struct target *target, const struct place *place)
{
        struct listener l = {.links = {.target = &target->transport,
                                     .guest_port = place->guest_port,
                                     .connect_ms = o->connect_ms,
                                     .freed = on_freed},
                .fd = -1};
        int r = open_listener(place, &l.fd);

        if (r != 0)
                return r;
        l.links.base = event_base_new();
        if (!l.links.base) {
                (void)close(l.fd);
                return EXIT_FAILED;
        }
        (void)signal(SIGPIPE, SIG_IGN);
        (void)event_assign(&l.acceptable, l.links.base, l.fd, EV_READ | EV_PERSIST, on_acceptable, &l);
        (void)evtimer_assign(&l.pause, l.links.base, on_pause_ended, &l);
        (void)evsignal_assign(&l.interrupt, l.links.base, SIGINT, on_signal, &l);
        (void)evsignal_assign(&l.terminate, l.links.base, SIGTERM, on_signal, &l);
        (void)evsignal_add(&l.interrupt, NULL);
        (void)evsignal_add(&l.terminate, NULL);
        watch(&l);
        printf("%s:%u is port %u of the guest\n", place->address, place->host_port, place->guest_port);
        (void)fflush(stdout);
        r = event_base_dispatch(l.links.base) < 0 ? EXIT_FAILED : 0;
        (void)close(l.fd);
        return r;
}

int command_forward(int argc, char **argv)
{
        struct forward_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        struct target target = {0};
        struct place place;
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && (rest_n != 1 || parse_place(rest[0], &place) < 0))
                r = options_usage_error(&table, "[ADDRESS:]HOSTPORT:GUESTPORT is needed, as 8080:80");
        if (r == 0)
                r = target_resolve(&table, &options.target, &target);
        if (r == 0)
                r = serve(&options, &target, &place);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        target_done(&target);
        return r < 0 ? EXIT_FAILED : r;
}
