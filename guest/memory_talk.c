/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/memory_talk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/agent.h"
#include "guest/memory.h"
#include "guest/tmpfs.h"
#include "proto/base/cleanup.h"

#define PERCENT_MAX 100

struct refusal {
        const char *reason;
        char detail[WB_MEMORY_PATH_MAX + 160];
};

/* Answers false, for who is asked whether it can go on. */
static bool refuse(struct refusal *f, const char *reason, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static bool refuse(struct refusal *f, const char *reason, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(f->detail, sizeof(f->detail), format, ap);
        va_end(ap);
        f->reason = reason;
        return false;
}

static bool resize_one(struct memory_watch *w, const Wb__MemoryFilesystemSize *m, bool dry, struct refusal *f)
{
        char path[WB_MEMORY_PATH_MAX + 1];
        uint64_t used_bytes = 0;
        int r;

        (void)snprintf(path, sizeof(path), "%.*s", (int)m->path.len, (const char *)m->path.data);
        if (path[0] != '/')
                return refuse(f, "bad_request", "%s: a path begins with /", path);
        if (!m->percent == !m->size_bytes || m->percent > PERCENT_MAX)
                return refuse(f, "bad_request", "%s: a size, or 1 to 100 percent", path);
        if (m->size_bytes > INT64_MAX) /* the kernel would round it up to none, which is no limit */
                return refuse(f, "limit_unavailable", "%s: no filesystem is that large", path);
        r = memory_resize(w, path, m->percent, m->size_bytes, dry, &used_bytes);
        switch (r) {
        case 0: return true;
        case TMPFS_E_OTHER: return refuse(f, "not_tmpfs", "%s: no tmpfs is mounted there", path);
        case MEMORY_E_USED:
                return refuse(f, "limit_unavailable", "%s: %" PRIu64 " bytes of it are used", path, used_bytes);
        case MEMORY_E_FULL: return refuse(f, "limit_unavailable", "%s: too many follow memory already", path);
        case -ENOENT:
        case -ENOTDIR: return refuse(f, "not_found", "%s: %s", path, strerrordesc_np(-r));
        default: return refuse(f, "limit_unavailable", "%s: %s", path, strerrordesc_np(-r));
        }
}

static bool set_ceiling(struct memory_watch *w, const Wb__MemoryResize *m, struct refusal *f)
{
        static const enum memory_ceiling how[] = {
                [WB__MEMORY_RESIZE__CEILING__CEILING_FOLLOWS] = MEMORY_CEILING_FOLLOWS,
                [WB__MEMORY_RESIZE__CEILING__CEILING_FIXED] = MEMORY_CEILING_FIXED,
                [WB__MEMORY_RESIZE__CEILING__CEILING_NONE] = MEMORY_CEILING_NONE,
        };
        int r;

        if (m->ceiling == WB__MEMORY_RESIZE__CEILING__CEILING_UNASKED)
                return true;
        if (m->ceiling == WB__MEMORY_RESIZE__CEILING__CEILING_FIXED && m->ceiling_bytes == 0)
                return refuse(f, "bad_request", "a ceiling of nothing");
        r = memory_set_ceiling(w, how[m->ceiling], m->ceiling_bytes);
        if (r == -EOPNOTSUPP)
                return refuse(f, "limit_unavailable", "memory: this guest has no such cgroup v2 controller for it");
        if (r < 0)
                return refuse(f, "limit_unavailable", "memory: %s", strerrordesc_np(-r));
        return true;
}

/* Seen to be possible, all of it, before the first is done. */
static bool resize(struct memory_watch *w, const Wb__MemoryResize *m, struct refusal *f)
{
        memory_look(w);
        for (size_t i = 0; i < m->n_filesystems; i++)
                if (!resize_one(w, m->filesystems[i], true, f))
                        return false;
        if (!set_ceiling(w, m, f))
                return false;
        for (size_t i = 0; i < m->n_filesystems; i++)
                if (!resize_one(w, m->filesystems[i], false, f))
                        return false;
        return true;
}

void memory_talk_resize(struct control *c, const Wb__MemoryResize *m)
{
        struct memory_watch *w = control_agent(c)->memory;
        _cleanup_free_ struct memory_message *message = malloc(sizeof(*message));
        struct refusal refusal = {.reason = "internal", .detail = "no memory"};
        Wb__FromAgent answer = WB__FROM_AGENT__INIT;

        if (message && resize(w, m, &refusal)) {
                memory_limits(w, message);
                answer.body_case = WB__FROM_AGENT__BODY_MEMORY_LIMITS;
                answer.memory_limits = &message->limits;
                (void)control_send(c, &answer);
        } else {
                (void)control_send_error(c, refusal.reason, refusal.detail);
        }
        control_finish(c);
}
