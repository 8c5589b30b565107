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
#include "guest/kernel_log.h"
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
        int log_fd;    /* the kernel's, where it has a vmgenid driver; -1: none */
        int vsock_fd;  /* /dev/vsock, to ask for our CID; -1: none */
        uint32_t cid;  /* 0: there was no device */
        struct event uevent, log, tick;

        unsigned seen;
        enum resume_source last;
        uint64_t last_ns;
};

static uint32_t own_cid(const struct resume_watch *w)
{
        uint32_t cid = VMADDR_CID_ANY;

        if (w->vsock_fd >= 0 && ioctl(w->vsock_fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) < 0)
                return 0;
        return cid == VMADDR_CID_ANY ? 0 : cid; /* no device: not yet, or just now */
}

/* The host knows, or nothing is there that could be a clone's: the gate has never been open. */
static bool is_in_order(const struct agent *agent)
{
        return agent->gate.state == GATE_CLOSED && !agent->last->opened;
}

/* Told, and counted unless it was announced, or is of a guest that stood still. */
static void tell(struct resume_watch *w, enum resume_source source, const char *what_now)
{
        if (standstill_why(w->agent->standstill) != STANDSTILL_NONE) {
                log_info("this machine, which stands still, was resumed (%s)", resume_source_name(source));
                return;
        }
        w->seen++;
        w->last = source;
        w->last_ns = clock_monotonic_ns();
        log_warning("this machine was resumed (%s)%s", resume_source_name(source), what_now);
}

static void freeze(struct resume_watch *w)
{
        int r = standstill_begin(w->agent->standstill, STANDSTILL_RESUMED);

        if (r < 0)
                (void)log_errno(r, "cannot freeze the workloads");
}

static void stand_still(struct resume_watch *w, enum resume_source source)
{
        if (is_in_order(w->agent)) {
                tell(w, source, " before it was ever activated");
                return;
        }
        tell(w, source, ": it stands still until the host activates it");
        activate_abort(w->agent, "the machine was resumed meanwhile");
        freeze(w);
}

/* Is it to be believed? Then the marker is known. */
static bool believe(struct resume_watch *w, enum resume_source source)
{
        uint64_t marker = w->vmclock ? vmclock_marker(w->vmclock) : 0;
        const struct resume_view view = {
                .gate = w->agent->gate.state,
                .has_vmclock = w->vmclock != NULL,
                .vmclock_changed = marker != w->marker,
                .stands_still = standstill_why(w->agent->standstill) == STANDSTILL_RESUMED,
        };

        if (!resume_is_true(source, &view))
                return false;
        w->marker = marker;
        return true;
}

/* ---- looking */

static bool is_another_cid(struct resume_watch *w)
{
        uint32_t before = w->cid, now = own_cid(w);

        if (now == 0)
                return false;
        w->cid = now;
        return before != 0 && before != now; /* the first that there is is not another one */
}

/* What all that is watched tells now, a bit for each source. Told once. */
static unsigned take_words(struct resume_watch *w)
{
        unsigned words = 0, said = w->uevent_fd >= 0 ? uevent_take(w->uevent_fd) : 0;

        if (w->vmclock && vmclock_marker(w->vmclock) != w->marker)
                words |= 1u << RESUME_VMCLOCK;
        if (said & UEVENT_GENERATION || (w->log_fd >= 0 && kernel_log_take(w->log_fd)))
                words |= 1u << RESUME_GENERATION;
        if (said & UEVENT_VSOCK_GONE)
                words |= 1u << RESUME_DEVICE;
        if (is_another_cid(w))
                words |= 1u << RESUME_CID;
        return words;
}

/* The first that is to be believed, or RESUME_SOURCES. */
static enum resume_source look(struct resume_watch *w)
{
        unsigned words = take_words(w);

        for (enum resume_source source = 0; source < RESUME_SOURCES; source++)
                if (words & 1u << source && believe(w, source))
                        return source;
        return RESUME_SOURCES;
}

void resume_look(struct resume_watch *w)
{
        enum resume_source source = look(w);

        if (source != RESUME_SOURCES)
                stand_still(w, source);
}

bool resume_came_meanwhile(struct resume_watch *w)
{
        enum resume_source source = look(w);

        if (source == RESUME_SOURCES)
                return false;
        tell(w, source, " while it was being activated");
        freeze(w);
        return true;
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
        if (error == ECONNRESET && believe(w, RESUME_TRANSPORT))
                stand_still(w, RESUME_TRANSPORT);
}

static void watch_log(struct resume_watch *w);

void resume_take_note(struct resume_watch *w)
{
        if (w->agent->transport.kind != TRANSPORT_UNIX)
                watch_log(w); /* the driver may have been loaded by now */
        (void)take_words(w);
        if (w->vmclock)
                w->marker = vmclock_marker(w->vmclock);
}

static void on_word(evutil_socket_t fd, short events, void *userdata)
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
        (void)event_assign(&w->tick, w->agent->base, -1, EV_PERSIST, on_word, w);
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
        (void)event_assign(&w->uevent, w->agent->base, fd, EV_READ | EV_PERSIST, on_word, w);
        (void)event_add(&w->uevent, NULL);
}

bool resume_has_vmgenid(void)
{
        return access("/sys/bus/acpi/drivers/vmgenid", F_OK) == 0 ||
               access("/sys/bus/platform/drivers/vmgenid", F_OK) == 0;
}

static void watch_log(struct resume_watch *w)
{
        int fd = w->log_fd >= 0 || !resume_has_vmgenid() ? -ENODEV : kernel_log_open();

        if (fd < 0) {
                if (fd != -ENODEV)
                        log_write_errno(LOG_LEVEL_WARNING, fd, "the kernel's log cannot be read");
                return;
        }
        w->log_fd = fd;
        (void)event_assign(&w->log, w->agent->base, fd, EV_READ | EV_PERSIST, on_word, w);
        (void)event_add(&w->log, NULL);
}

int resume_watch_new(struct agent *agent, const char *vmclock_path, struct resume_watch **ret)
{
        struct resume_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->agent = agent;
        w->uevent_fd = w->log_fd = w->vsock_fd = -1;
        watch_vmclock(w, vmclock_path);
        if (agent->transport.kind != TRANSPORT_UNIX) {
                watch_kernel(w);
                watch_log(w);
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
        if (w->log_fd >= 0)
                (void)event_del(&w->log);
        vmclock_close(w->vmclock);
        close_fd(w->uevent_fd);
        close_fd(w->log_fd);
        close_fd(w->vsock_fd);
        free(w);
}

void resume_describe(const struct resume_watch *w, char *sources, size_t sources_room, char *seen, size_t seen_room)
{
        (void)snprintf(sources, sources_room, "%s%s%s%s", w->vmclock ? "vmclock " : "",
                w->log_fd >= 0 ? "vmgenid " : "", w->uevent_fd >= 0 ? "uevent " : "", w->vsock_fd >= 0 ? "vsock" : "");
        if (!sources[0])
                (void)snprintf(sources, sources_room, "nothing");
        if (w->seen)
                (void)snprintf(seen, seen_room, "%u, the last by %s %" PRIu64 " s ago", w->seen,
                        resume_source_name(w->last), (clock_monotonic_ns() - w->last_ns) / NSEC_PER_SEC);
        else
                (void)snprintf(seen, seen_room, "0");
}
