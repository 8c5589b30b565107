/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/forwarder.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/dns_stub.h"
#include "guest/fake_pool.h"
#include "guest/forwarder_sandbox.h"
#include "guest/pair.h"
#include "guest/transparent.h"
#include "proto/base/log.h"

#define FIRST_SOCKET      3
#define ACCEPTS_PER_TURN  16
#define LARGE_BLOCK_BYTES (32 * 1024)

struct forwarder;

struct listener {
        struct forwarder *forwarder;
        enum forwarder_role role;
        struct event event;
};

struct forwarder {
        struct carrier carrier;
        struct fake_pool *pool;
        struct dns_stub *dns;
        struct listener listeners[FORWARDER_SOCKETS_MAX];
        size_t listeners_n;
        int exit_status;
};

static void on_room(struct carrier *c, bool is_there)
{
        struct forwarder *f = (struct forwarder *)(void *)((char *)c - offsetof(struct forwarder, carrier));

        for (size_t i = 0; i < f->listeners_n; i++)
                if (f->listeners[i].role != FORWARDER_DNS_TCP)
                        (void)(is_there ? event_add(&f->listeners[i].event, NULL) : event_del(&f->listeners[i].event));
}

/* A workload's connection, which is taken over; 0 or a negative errno. */
static int take(struct listener *l, int fd)
{
        struct forwarder *f = l->forwarder;

        if (l->role == FORWARDER_PROXY)
                return pair_open(&f->carrier, fd);
        if (l->role == FORWARDER_TRANSPARENT)
                return transparent_open(&f->carrier, f->pool, fd);
        dns_stub_open_tcp(f->dns, fd);
        return 0;
}

/* The host's socket has another owner than when the sandbox was chosen: another process starts over. */
static void start_over(void *userdata)
{
        struct forwarder *f = userdata;

        f->exit_status = 1;
        (void)event_base_loopbreak(f->carrier.base);
}

/* DNS over TCP has bounds of its own. */
static bool has_room(const struct listener *l)
{
        return l->role == FORWARDER_DNS_TCP || l->forwarder->carrier.connections < CARRIER_CONNECTIONS_MAX;
}

static void on_acceptable(evutil_socket_t fd, short events, void *userdata)
{
        struct listener *l = userdata;
        struct forwarder *f = l->forwarder;

        (void)events;
        for (int i = 0; i < ACCEPTS_PER_TURN && has_room(l); i++) {
                // cppcheck-suppress nullPointer ; accept(2): the address may be left out
                int taken = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (taken < 0)
                        return;
                if (take(l, taken) == -EACCES) {
                        start_over(f);
                        return;
                }
        }
}

static int serve(struct forwarder *f, enum forwarder_role role, int fd)
{
        struct listener *l = &f->listeners[f->listeners_n];

        if (role == FORWARDER_DNS_UDP)
                return dns_stub_serve_udp(f->dns, fd);
        if (role != FORWARDER_PROXY && role != FORWARDER_TRANSPARENT && role != FORWARDER_DNS_TCP)
                return -EINVAL;
        *l = (struct listener){.forwarder = f, .role = role};
        (void)event_assign(&l->event, f->carrier.base, fd, EV_READ | EV_PERSIST, on_acceptable, l);
        f->listeners_n++;
        return event_add(&l->event, NULL) < 0 ? -ENOMEM : 0;
}

static int serve_all(struct forwarder *f, const char *roles)
{
        size_t n = strlen(roles);

        if (n == 0 || n > FORWARDER_SOCKETS_MAX)
                return -EINVAL;
        for (size_t i = 0; i < n; i++) {
                int fd = FIRST_SOCKET + (int)i, r;

                if (fcntl(fd, F_GETFD) < 0)
                        return -errno;
                r = serve(f, (enum forwarder_role)roles[i], fd);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* What the roles need: no names, no pool. */
static int prepare(struct forwarder *f, const char *roles)
{
        int r;

        f->carrier.base = event_base_new();
        if (!f->carrier.base)
                return -ENOMEM;
        if (strspn(roles, "p") == strlen(roles))
                return 0;
        r = fake_pool_new(FAKE_POOL_NAMES_MAX, &f->pool);
        if (r == 0)
                r = dns_stub_new(f->carrier.base, &f->carrier.transport, f->pool, start_over, f, &f->dns);
        return r;
}

int forwarder_main(const char *where, const char *roles)
{
        bool is_vsock = strcmp(where, FORWARDER_VSOCK) == 0;
        struct forwarder f = {.carrier = {.transport = {.kind = is_vsock ? TRANSPORT_VSOCK : TRANSPORT_UNIX,
                                                  .path = is_vsock ? NULL : where},
                                      .room_changed = on_room}};
        int r;

        log_setup("wbagent-forwarder", LOG_LEVEL_INFO);
        (void)prctl(PR_SET_NAME, "wbagent-forward");        /* exe, of /proc/self/exe, says nothing */
        (void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES); /* a connection's memory goes back when it ends */
        r = prepare(&f, roles);
        if (r == 0)
                r = serve_all(&f, roles);
        if (r < 0) {
                (void)log_errno(r, "cannot serve the sockets '%s' from descriptor 3 on", roles);
                return 1;
        }
        r = forwarder_enter_sandbox(&f.carrier.transport);
        if (r < 0)
                return 1;
        (void)event_base_dispatch(f.carrier.base);
        return f.exit_status;
}
