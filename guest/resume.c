/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "guest/activate.h"
#include "guest/agent.h"
#include "guest/resume_judge.h"
#include "guest/standstill.h"
#include "guest/uevent.h"
#include "guest/vmclock.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

#define LOOK_MS 250 /* at a page of memory, while nobody asks for anything */

struct resume_watch {
        struct agent *agent;
        struct vmclock *vmclock; /* NULL: none */
        uint64_t marker;
        int uevent_fd; /* -1: none */
        int vsock_fd;  /* /dev/vsock, to ask for our CID; -1: none */
        uint32_t cid;
        struct event uevent, tick;

        unsigned seen;
        enum resume_source last;
        uint64_t last_ns;
};

static uint32_t own_cid(const struct resume_watch *w)
{
        uint32_t cid = 0;

        if (w->vsock_fd >= 0 && ioctl(w->vsock_fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) < 0)
                return 0; /* no device yet */
        return cid;
}

/* The host knows, or nothing is there that could be a clone's: the gate has never been open. */
static bool is_in_order(const struct agent *agent)
{
        return agent->gate.state == GATE_CLOSED && !agent->last->opened;
}

static void stand_still(struct resume_watch *w, enum resume_source source)
{
        struct agent *agent = w->agent;
        int r;

        w->seen++;
        w->last = source;
        w->last_ns = clock_monotonic_ns();
        if (is_in_order(agent)) {
                log_info("this machine was resumed (%s) before it was ever activated", resume_source_name(source));
                return;
        }
        log_warning("this machine was resumed (%s): it stands still until the host activates it",
                resume_source_name(source));
        activate_abort(agent, "the machine was resumed meanwhile");
        r = standstill_begin(agent->standstill, STANDSTILL_RESUMED);
        if (r < 0)
                (void)log_errno(r, "cannot freeze the workloads");
}

static void hear(struct resume_watch *w, enum resume_source source)
{
        uint64_t marker = w->vmclock ? vmclock_marker(w->vmclock) : 0;
        const struct resume_view view = {
                .gate = w->agent->gate.state,
                .has_vmclock = w->vmclock != NULL,
                .vmclock_changed = marker != w->marker,
                .stands_still = standstill_why(w->agent->standstill) == STANDSTILL_RESUMED,
        };

        if (!resume_is_true(source, &view))
                return;
        w->marker = marker;
        stand_still(w, source);
}

void resume_look(struct resume_watch *w)
{
        uint32_t cid = own_cid(w);

        if (w->vmclock && vmclock_marker(w->vmclock) != w->marker)
                hear(w, RESUME_VMCLOCK);
        if (cid == w->cid || cid == 0)
                return;
        /* The first that there is is not another one. */
        if (w->cid != 0)
                hear(w, RESUME_CID);
        w->cid = cid;
}

/* The kernel says ENOTCONN of such a socket, and keeps ECONNRESET for who asks (net/vmw_vsock/af_vsock.c). */
void resume_connection_broke(struct resume_watch *w, int fd, int error)
{
        int pending = 0;
        socklen_t n = sizeof(pending);

        if (w->agent->transport.kind == TRANSPORT_UNIX)
                return;
        if (error == ENOTCONN && getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &n) == 0)
                error = pending;
        if (error == ECONNRESET)
                hear(w, RESUME_TRANSPORT);
}

void resume_take_note(struct resume_watch *w)
{
        if (w->uevent_fd >= 0)
                (void)uevent_take(w->uevent_fd);
        if (w->vmclock)
                w->marker = vmclock_marker(w->vmclock);
        w->cid = own_cid(w);
}

static void on_uevent(evutil_socket_t fd, short events, void *userdata)
{
        struct resume_watch *w = userdata;

        (void)events;
        if (uevent_take(fd))
                hear(w, RESUME_GENERATION);
}

static void on_tick(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        resume_look(userdata);
}

/* ---- life */

static void watch_vmclock(struct resume_watch *w, const char *path)
{
        int r = path ? vmclock_open(path, &w->vmclock) : -ENOENT;

        if (r < 0 && r != -ENOENT)
                log_write_errno(LOG_LEVEL_WARNING, r, "%s", path);
        if (r < 0)
                return;
        w->marker = vmclock_marker(w->vmclock);
        (void)event_assign(&w->tick, w->agent->base, -1, EV_PERSIST, on_tick, w);
        (void)event_add(&w->tick, &(struct timeval){.tv_usec = LOOK_MS * 1000});
}

static void watch_kernel(struct resume_watch *w)
{
        int fd = uevent_open();

        if (fd < 0) {
                log_write_errno(LOG_LEVEL_WARNING, fd, "the kernel's messages of devices cannot be heard");
                return;
        }
        w->uevent_fd = fd;
        (void)event_assign(&w->uevent, w->agent->base, fd, EV_READ | EV_PERSIST, on_uevent, w);
        (void)event_add(&w->uevent, NULL);
}

int resume_watch_new(struct agent *agent, const char *vmclock_path, struct resume_watch **ret)
{
        struct resume_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->agent = agent;
        w->uevent_fd = w->vsock_fd = -1;
        watch_vmclock(w, vmclock_path);
        if (agent->transport.kind != TRANSPORT_UNIX) {
                watch_kernel(w);
                w->vsock_fd = open("/dev/vsock", O_RDONLY | O_CLOEXEC);
                w->cid = own_cid(w);
        }
        *ret = w;
        return 0;
}

void resume_watch_free(struct resume_watch *w)
{
        if (!w)
                return;
        if (w->vmclock)
                (void)event_del(&w->tick);
        if (w->uevent_fd >= 0)
                (void)event_del(&w->uevent);
        vmclock_close(w->vmclock);
        close_fd(w->uevent_fd);
        close_fd(w->vsock_fd);
        free(w);
}

void resume_describe(const struct resume_watch *w, char *sources, size_t sources_room, char *seen, size_t seen_room)
{
        (void)snprintf(sources, sources_room, "%s%s%s", w->vmclock ? "vmclock " : "",
                w->uevent_fd >= 0 ? "uevent " : "", w->vsock_fd >= 0 ? "vsock" : "");
        if (!sources[0])
                (void)snprintf(sources, sources_room, "nothing");
        if (w->seen)
                (void)snprintf(seen, seen_room, "%u, the last by %s %" PRIu64 " s ago", w->seen,
                        resume_source_name(w->last), (clock_monotonic_ns() - w->last_ns) / NSEC_PER_SEC);
        else
                (void)snprintf(seen, seen_room, "0");
}
