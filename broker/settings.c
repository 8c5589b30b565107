/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/settings.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/inspect.h"
#include "proto/base/cleanup.h"

static void *copy_array(const void *from, size_t n, size_t size)
{
        void *to = calloc(n ? n : 1, size);

        if (to && n)
                memcpy(to, from, n * size);
        return to;
}

static int add_interface(struct floor *floor, const struct sockaddr *address)
{
        struct hostname host;
        struct prefix p;

        if (address && address->sa_family == AF_INET)
                hostname_from_address(HOST_IPV4,
                        (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr, &host);
        else if (address && address->sa_family == AF_INET6)
                hostname_from_address(HOST_IPV6,
                        (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, &host);
        else
                return 0;
        prefix_from_address(&host, &p);
        return floor_add_range(floor, &p);
}

static int add_interfaces(struct floor *floor)
{
        struct ifaddrs *list = NULL;
        int r = 0;

        if (getifaddrs(&list) < 0)
                return -errno;
        for (const struct ifaddrs *i = list; i && r == 0; i = i->ifa_next)
                r = add_interface(floor, i->ifa_addr);
        freeifaddrs(list);
        return r;
}

static int add_of_operator(struct floor *floor, const struct config *c)
{
        int r = 0;

        for (size_t i = 0; i < c->floor_deny_n && r == 0; i++)
                r = floor_add_range(floor, &c->floor_deny[i]);
        for (size_t i = 0; i < c->floor_deny_names_n && r == 0; i++) {
                struct hostname name;

                r = hostname_parse(c->floor_deny_names[i], strlen(c->floor_deny_names[i]), &name) == 0
                            ? floor_add_name(floor, &name)
                            : -EINVAL;
        }
        return r;
}

static int fill_services(struct worker_settings *to, const struct config *c)
{
        to->services = calloc(c->services_n + 1, sizeof(*to->services));
        if (!to->services)
                return -ENOMEM;
        for (size_t i = 0; i < c->services_n; i++) {
                const struct worker_service *from = &c->services[i];
                struct worker_service *s = &to->services[i];

                to->services_n++;
                s->name = strdup(from->name);
                s->connect = strdup(from->connect);
                s->ports = copy_array(from->ports, from->ports_n, sizeof(*from->ports));
                s->ports_n = from->ports_n;
                if (!s->name || !s->connect || !s->ports)
                        return -ENOMEM;
        }
        return 0;
}

int settings_make(const struct setup *setup, const struct setup *before, struct worker_settings **ret)
{
        const struct config *c = setup->config;
        struct worker_settings *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        *s = (struct worker_settings){
                .refs = 1,
                .dns_timeout_ms = c->dns_timeout_ms,
                .dns_cache_max_s = c->dns_cache_max_s,
                .request_head_ms = c->request_head_ms,
                .client_hello_ms = c->client_hello_ms,
                .connect_ms = c->connect_ms,
                .idle_ms = c->idle_ms,
                .trust = inspect_trust_ref(setup->trust),
                .audit_required = c->audit_required,
                .own_pid = getppid(), /* the monitor */
        };
        r = add_of_operator(&s->floor, c);
        if (r == 0 && before)
                r = add_of_operator(&s->floor, before->config);
        if (r == 0)
                r = add_interfaces(&s->floor);
        if (r == 0)
                r = fill_services(s, c);
        s->dns_servers = copy_array(setup->resolvers, setup->resolvers_n, sizeof(*setup->resolvers));
        s->dns_servers_n = setup->resolvers_n;
        if (r == 0 && !s->dns_servers)
                r = -ENOMEM;
        if (r < 0) {
                worker_settings_unref(s);
                return r;
        }
        *ret = s;
        return 0;
}

int settings_watch_addresses(int *ret_fd)
{
        struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

bool settings_addresses_changed(int fd)
{
        char bytes[8192];
        bool changed = false;

        for (;;) {
                ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

                if (n < 0 && errno == EINTR)
                        continue;
                /* An overflow has lost news, so there were some. */
                if (n < 0)
                        return changed || errno == ENOBUFS;
                changed = true;
        }
}
