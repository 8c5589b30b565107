/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "guest/fake_route.h"
#include "guest/redirect.h"
#include "guest/steer.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define LISTEN_BACKLOG 512

union address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
};

static int open_socket(const union address *a, int type)
{
        bool is_v6 = a->any.sa_family == AF_INET6;
        _cleanup_close_ int fd = socket(a->any.sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int on = 1;

        if (fd < 0)
                return -errno;
        if (type == SOCK_STREAM)
                (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (is_v6)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        if (bind(fd, &a->any, is_v6 ? sizeof(a->v6) : sizeof(a->v4)) < 0)
                return -errno;
        if (type == SOCK_STREAM && listen(fd, LISTEN_BACKLOG) < 0)
                return -errno;
        return steal_fd(&fd);
}

/* 0 or a negative errno. */
static int add(struct listeners *l, enum forwarder_role role, const union address *a)
{
        int fd = open_socket(a, role == FORWARDER_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM);

        if (fd < 0)
                return fd;
        l->fds[l->n] = fd;
        l->roles[l->n++] = (char)role;
        return 0;
}

static int add_v4(struct listeners *l, enum forwarder_role role, in_addr_t address, uint16_t port)
{
        union address a = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};

        a.v4.sin_addr.s_addr = htonl(address);
        return add(l, role, &a);
}

/* A kernel without IPv6 is no error. */
static bool add_v6(struct listeners *l, enum forwarder_role role, uint16_t port)
{
        union address a = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback}};

        return add(l, role, &a) == 0;
}

static void drop_from(struct listeners *l, size_t n)
{
        while (l->n > n) {
                l->n--;
                l->fds[l->n] = close_fd(l->fds[l->n]);
                l->roles[l->n] = '\0';
        }
}

/* UDP and TCP, or neither: a resolver that asks again over TCP must find the same. */
static int open_dns(struct listeners *l, struct report *report)
{
        size_t before = l->n;
        int r = add_v4(l, FORWARDER_DNS_UDP, INADDR_LOOPBACK, WB_DNS_PORT);
        bool has_v6;

        if (r == 0)
                r = add_v4(l, FORWARDER_DNS_TCP, INADDR_LOOPBACK, WB_DNS_PORT);
        if (r < 0) {
                drop_from(l, before);
                report_fact(report, "dns", "none: %s", strerrordesc_np(-r));
                return r;
        }
        before = l->n;
        has_v6 = add_v6(l, FORWARDER_DNS_UDP, WB_DNS_PORT) && add_v6(l, FORWARDER_DNS_TCP, WB_DNS_PORT);
        if (!has_v6)
                drop_from(l, before);
        report_fact(report, "dns", "127.0.0.1:%u%s", WB_DNS_PORT, has_v6 ? ", [::1]" : "");
        l->has_names = true;
        return 0;
}

/* One listener for all ports, by whichever of the two the kernel lets us. */
static int open_steered(struct listeners *l, struct report *report)
{
        size_t before = l->n;
        const char *how = "sk_lookup";
        int r = add_v4(l, FORWARDER_TRANSPARENT, INADDR_LOOPBACK, WB_TRANSPARENT_PORT);

        if (r < 0)
                return r;
        r = steer_start(l->fds[before], &l->steer_fd);
        if (r < 0) {
                how = "nftables";
                r = redirect_start(WB_TRANSPARENT_PORT, &l->steer_fd);
        }
        if (r < 0) {
                drop_from(l, before);
                return r;
        }
        report_fact(report, "transparent", "all ports");
        report_fact(report, "steering", "%s", how);
        return 0;
}

/* A listener for each port, where the workloads have none of their own. */
static void open_each(struct listeners *l, const uint16_t *ports, size_t n, int why_not_all, struct report *report)
{
        size_t before = l->n;
        char text[80] = "ports";
        size_t text_n = strlen(text);

        for (size_t i = 0; i < n && i < LISTENERS_PORTS_MAX && l->n < FORWARDER_SOCKETS_MAX; i++) {
                if (add_v4(l, FORWARDER_TRANSPARENT, INADDR_ANY, ports[i]) < 0)
                        continue;
                text_n += (size_t)snprintf(text + text_n, sizeof(text) - text_n, " %u", ports[i]);
                if (text_n >= sizeof(text))
                        text_n = sizeof(text) - 1;
        }
        report_fact(report, "transparent", "%s", l->n > before ? text : "none");
        report_fact(report, "steering", "none: %s", strerrordesc_np(-why_not_all));
}

static void open_transparent(struct listeners *l, const uint16_t *ports, size_t n, struct report *report)
{
        int r = fake_route_add();

        if (r < 0) {
                report_fact(report, "transparent", "none: no route: %s", strerrordesc_np(-r));
                return;
        }
        r = open_steered(l, report);
        if (r < 0)
                open_each(l, ports, n, r, report);
}

int listeners_open(struct listeners *l, bool transparent, const uint16_t *ports, size_t ports_n, struct report *report)
{
        int r;

        *l = LISTENERS_NONE;
        r = add_v4(l, FORWARDER_PROXY, INADDR_LOOPBACK, WB_FORWARDER_PORT);
        if (r < 0)
                return r;
        report_fact(report, "forwarder", "127.0.0.1:%u%s", WB_FORWARDER_PORT,
                add_v6(l, FORWARDER_PROXY, WB_FORWARDER_PORT) ? ", [::1]" : "");
        if (transparent && open_dns(l, report) == 0)
                open_transparent(l, ports, ports_n, report);
        return 0;
}

void listeners_close(struct listeners *l)
{
        drop_from(l, 0);
        l->steer_fd = close_fd(l->steer_fd);
        l->has_names = false;
}
