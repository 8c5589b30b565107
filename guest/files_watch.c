/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "proto/base/cleanup.h"

static const struct {
        uint32_t bit;
        const char *name;
} kinds[] = {
        {IN_CREATE, "created"},
        {IN_MODIFY, "modified"},
        {IN_CLOSE_WRITE, "written"},
        {IN_ATTRIB, "attributes"},
        {IN_DELETE, "removed"},
        {IN_MOVED_FROM, "moved_from"},
        {IN_MOVED_TO, "moved_to"},
        {IN_DELETE_SELF, "gone"},
        {IN_MOVE_SELF, "gone"},
        {IN_UNMOUNT, "gone"},
        {IN_Q_OVERFLOW, "overflow"},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

#define WATCHED                                                                                                        \
        (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |                \
                IN_DELETE_SELF | IN_MOVE_SELF)

static int send_event(struct talk *t, const struct inotify_event *e)
{
        char *names[KINDS];
        Wb__FileEvent event = WB__FILE_EVENT__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        event.kinds = names;
        for (size_t i = 0; i < KINDS; i++)
                if (e->mask & kinds[i].bit)
                        names[event.n_kinds++] = (char *)(uintptr_t)kinds[i].name;
        if (!event.n_kinds)
                return 0; /* IN_IGNORED: its cause was told before */
        if (e->len)
                event.name =
                        (ProtobufCBinaryData){.len = strnlen(e->name, e->len), .data = (uint8_t *)(uintptr_t)e->name};
        event.directory = e->mask & IN_ISDIR;
        event.cookie = e->cookie;
        m.body_case = WB__FROM_AGENT__BODY_FILE_EVENT;
        m.file_event = &event;
        return talk_send(t, &m);
}

static int send_events(struct talk *t, int inotify)
{
        char buffer[16 * 1024] __attribute__((aligned(__alignof__(struct inotify_event))));
        ssize_t n = read(inotify, buffer, sizeof(buffer));
        int r = n < 0 && errno != EINTR ? -errno : 0;

        for (ssize_t at = 0; r == 0 && at < n;) {
                const struct inotify_event *e = (const struct inotify_event *)(const void *)(buffer + at);

                r = send_event(t, e);
                at += (ssize_t)(sizeof(*e) + e->len);
        }
        return r;
}

/* Until the host says something, which it has no right to, or goes away. */
static int watch(struct talk *t, int inotify)
{
        struct pollfd p[2] = {{.fd = t->fd, .events = POLLIN}, {.fd = inotify, .events = POLLIN}};

        for (;;) {
                int r = poll(p, 2, -1);

                if (r < 0 && errno != EINTR)
                        return -errno;
                if (p[0].revents)
                        return -EPIPE;
                r = p[1].revents ? send_events(t, inotify) : 0;
                if (r < 0)
                        return r;
        }
}

int files_watch(struct talk *t, const Wb__FileWatch *m)
{
        _cleanup_close_ int inotify = inotify_init1(IN_CLOEXEC), fd = -1;
        char path[32];
        int r = inotify < 0 ? -errno : place_open(m->place, &fd);

        if (r < 0)
                return r;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (inotify_add_watch(inotify, path, WATCHED) < 0)
                return -errno;
        r = talk_send_ready(t);
        return r < 0 ? r : watch(t, inotify);
}
