/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/control_server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/control_pool.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"

#define ACCEPTS_PER_TURN 64
#define RETRY_MS         100 /* after accept() failed for want of descriptors or memory */

struct control_server {
        struct control_pool pool;
        int listen_fd;
        int vsock_fd; /* /dev/vsock, to ask for our own CID; -1 where there is none */
        struct event acceptable, retry;
};

/* The host, and nobody in the guest: not even where the guest's own CID is the one that hosts have (a host is nobody's
 * guest). */
static bool may_speak(struct control_server *server, int fd)
{
        uint32_t peer, own;

        if (server->pool.agent->transport.kind == TRANSPORT_UNIX)
                return true;
        if (transport_peer_cid(fd, &peer) < 0 || peer != WB_CID_HOST) {
                log_warning("refused a vsock connection that is not the host's");
                return false;
        }
        if (server->vsock_fd >= 0 && ioctl(server->vsock_fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &own) == 0 &&
                own == peer) {
                log_warning("refused a vsock connection from CID %u, which is this machine's own", peer);
                return false;
        }
        return true;
}

/* The oldest that has said nothing yet gives way. */
static bool make_room(struct control_server *server)
{
        if (server->pool.n < CONTROL_MAX)
                return true;
        for (struct control *c = server->pool.oldest; c; c = control_newer(c))
                if (control_is_silent(c)) {
                        control_free(c);
                        return true;
                }
        return false;
}

static void take_connection(struct control_server *server, int fd)
{
        _cleanup_close_ int taken = fd;

        if (may_speak(server, fd) && make_room(server) && control_new(&server->pool, fd) == 0)
                (void)steal_fd(&taken);
}

static void on_acceptable(evutil_socket_t listen_fd, short events, void *userdata)
{
        struct control_server *server = userdata;

        (void)events;
        for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
                int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd >= 0) {
                        take_connection(server, fd);
                        continue;
                }
                if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                        (void)event_del(&server->acceptable);
                        (void)evtimer_add(&server->retry, &(struct timeval){.tv_usec = RETRY_MS * 1000});
                }
                return;
        }
}

static void on_retry(evutil_socket_t fd, short events, void *userdata)
{
        struct control_server *server = userdata;

        (void)fd;
        (void)events;
        (void)event_add(&server->acceptable, NULL);
}

static int open_vsock(void)
{
        return open("/dev/vsock", O_RDONLY | O_CLOEXEC);
}

int control_server_new(struct agent *agent, int listen_fd, int (*open)(struct control *c, const Wb__ToAgent *m),
        struct control_server **ret)
{
        struct control_server *server = calloc(1, sizeof(*server));

        if (!server)
                return -ENOMEM;
        server->pool.agent = agent;
        server->pool.open = open;
        server->listen_fd = listen_fd;
        server->vsock_fd = -1;
        if (agent->transport.kind != TRANSPORT_UNIX)
                server->vsock_fd = open_vsock();
        (void)event_assign(&server->acceptable, agent->base, listen_fd, EV_READ | EV_PERSIST, on_acceptable, server);
        (void)evtimer_assign(&server->retry, agent->base, on_retry, server);
        (void)event_add(&server->acceptable, NULL);
        *ret = server;
        return 0;
}

void control_server_free(struct control_server *server)
{
        if (!server)
                return;
        (void)event_del(&server->acceptable);
        (void)evtimer_del(&server->retry);
        while (server->pool.oldest)
                control_free(server->pool.oldest);
        close_fd(server->listen_fd);
        close_fd(server->vsock_fd);
        free(server);
}
