/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/exec.h"
#include "guest/filesystems.h"
#include "guest/init.h"
#include "guest/memory_size.h"
#include "guest/statistics.h"
#include "guest/tmpfs.h"
#include "guest/uevent.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define LOOK_S 10

struct followed {
        char path[WB_MEMORY_PATH_MAX + 1];
        uint32_t percent;
        int error; /* of the last try: 0, TMPFS_E_OTHER, MEMORY_E_USED, or a negative errno */
};

struct memory_watch {
        struct agent *agent;
        uint64_t page_bytes;
        uint64_t used_before_bytes; /* before the first exec */
        uint64_t total_bytes;
        enum memory_ceiling ceiling;
        uint64_t ceiling_bytes; /* in force; 0: none */
        int ceiling_error;      /* of the last try */
        struct followed followed[WB_MEMORY_FILESYSTEMS_MAX];
        size_t followed_n;
        int uevent_fd; /* -1: none */
        struct event uevent, tick;
};

/* As MemTotal of /proc/meminfo. */
static uint64_t total_bytes(const struct memory_watch *w)
{
        struct sysinfo info;

        return sysinfo(&info) < 0 ? w->total_bytes : (uint64_t)info.totalram * info.mem_unit;
}

/* A balloon tells nobody, and what could not be done may be possible later; where nothing follows nobody looks. */
static void arm(struct memory_watch *w)
{
        if (w->followed_n == 0 && w->ceiling != MEMORY_CEILING_FOLLOWS)
                (void)event_del(&w->tick);
        else if (!event_pending(&w->tick, EV_TIMEOUT, NULL))
                (void)event_add(&w->tick, &(struct timeval){.tv_sec = LOOK_S});
}

/* ---- the ceiling */

static int write_ceiling(struct memory_watch *w, uint64_t bytes)
{
        int r = exec_table_ceiling(w->agent->execs, bytes);

        if (r == 0)
                w->ceiling_bytes = bytes;
        return r;
}

static void follow_with_ceiling(struct memory_watch *w)
{
        uint64_t bytes = memory_size_ceiling(w->total_bytes, w->used_before_bytes, w->page_bytes);
        int before = w->ceiling_error;

        w->ceiling_error = write_ceiling(w, bytes);
        if (w->ceiling_error == 0)
                log_info("memory: %" PRIu64 " KiB, of them %" PRIu64 " for all commands together",
                        w->total_bytes / 1024, bytes / 1024);
        else if (w->ceiling_error != before)
                log_write_errno(LOG_LEVEL_WARNING, w->ceiling_error, "memory: commands have no ceiling");
}

int memory_set_ceiling(struct memory_watch *w, enum memory_ceiling how, uint64_t bytes)
{
        int r;

        if (how == MEMORY_CEILING_FOLLOWS)
                bytes = memory_size_ceiling(w->total_bytes, w->used_before_bytes, w->page_bytes);
        r = write_ceiling(w, how == MEMORY_CEILING_NONE ? 0 : bytes);
        if (r < 0)
                return r;
        w->ceiling = how;
        w->ceiling_error = 0;
        arm(w);
        return 0;
}

/* ---- filesystems */

/* 0; TMPFS_E_OTHER; MEMORY_E_USED; or a negative errno. */
static int size_one(const struct memory_watch *w, const char *path, uint32_t percent, uint64_t bytes, bool dry,
        uint64_t *ret_used_bytes)
{
        _cleanup_close_ int fd = -1;
        struct tmpfs_use use;
        char size[24];
        int r = tmpfs_open(path, &fd, &use);

        if (r != 0)
                return r;
        if (percent)
                bytes = memory_size_of_percent(w->total_bytes, percent, w->page_bytes);
        *ret_used_bytes = use.used_bytes;
        if (bytes < use.used_bytes)
                return MEMORY_E_USED;
        if (dry)
                return 0;
        (void)snprintf(size, sizeof(size), percent ? "%" PRIu64 "%%" : "%" PRIu64, percent ? percent : bytes);
        return tmpfs_resize(fd, size, memory_size_inodes(w->total_bytes, percent, w->page_bytes));
}

static void follow_with_filesystem(const struct memory_watch *w, struct followed *f)
{
        int before = f->error;
        uint64_t used_bytes;

        f->error = size_one(w, f->path, f->percent, 0, false, &used_bytes);
        if (f->error == 0 || f->error == before)
                return;
        if (f->error < 0)
                log_write_errno(LOG_LEVEL_WARNING, f->error, "memory: %s keeps its size", f->path);
        else
                log_warning("memory: %s keeps its size: %s", f->path,
                        f->error == MEMORY_E_USED ? "more than its new one is used" : "it is no tmpfs any more");
}

static struct followed *find(struct memory_watch *w, const char *path)
{
        for (size_t i = 0; i < w->followed_n; i++)
                if (strcmp(w->followed[i].path, path) == 0)
                        return &w->followed[i];
        return NULL;
}

static void follow(struct memory_watch *w, const char *path, uint32_t percent)
{
        struct followed *f = find(w, path);

        if (!f)
                f = &w->followed[w->followed_n++];
        (void)snprintf(f->path, sizeof(f->path), "%s", path);
        f->percent = percent;
        f->error = 0;
}

static void let_go(struct memory_watch *w, const char *path)
{
        struct followed *f = find(w, path);

        if (f)
                *f = w->followed[--w->followed_n];
}

int memory_resize(
        struct memory_watch *w, const char *path, uint32_t percent, uint64_t bytes, bool dry, uint64_t *ret_used_bytes)
{
        int r;

        if (percent && !find(w, path) && w->followed_n == WB_MEMORY_FILESYSTEMS_MAX)
                return MEMORY_E_FULL;
        r = size_one(w, path, percent, bytes, dry, ret_used_bytes);
        if (r != 0 || dry)
                return r;
        if (percent)
                follow(w, path, percent);
        else
                let_go(w, path);
        arm(w);
        return 0;
}

/* ---- looking */

void memory_look(struct memory_watch *w)
{
        uint64_t now_bytes = total_bytes(w);

        bool is_another = now_bytes != w->total_bytes;

        w->total_bytes = now_bytes;
        if (w->ceiling == MEMORY_CEILING_FOLLOWS && (is_another || w->ceiling_error != 0))
                follow_with_ceiling(w);
        for (size_t i = 0; i < w->followed_n; i++)
                if (is_another || w->followed[i].error != 0)
                        follow_with_filesystem(w, &w->followed[i]);
}

static void on_tick(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        memory_look(userdata);
}

static void on_uevent(evutil_socket_t fd, short events, void *userdata)
{
        (void)events;
        if (!(uevent_take(fd) & UEVENT_MEMORY))
                return;
        log_info("memory came or went");
        memory_look(userdata);
}

/* ---- telling */

static const char *ceiling_name(const struct memory_watch *w)
{
        static const char *const names[] = {
                [MEMORY_CEILING_NONE] = "none",
                [MEMORY_CEILING_FOLLOWS] = "follows",
                [MEMORY_CEILING_FIXED] = "fixed",
        };

        return w->ceiling_error < 0 ? "unavailable" : names[w->ceiling];
}

void memory_report(const struct memory_watch *w, struct report *report)
{
        report_fact(report, "memory_bytes", "%" PRIu64, w->total_bytes);
        if (w->ceiling_bytes)
                report_fact(report, "ceiling_bytes", "%" PRIu64, w->ceiling_bytes);
}

static const char *fault_text(int error)
{
        const char *text = error < 0 ? strerrordesc_np(-error) : NULL;

        if (error == MEMORY_E_USED)
                return "more than its share is used";
        return text ? text : "";
}

/* False: another one is mounted over it. */
static bool fill_item(
        const struct memory_watch *w, const struct filesystem *found, Wb__MemoryFilesystem *item, char *path_copy)
{
        const struct followed *f = find((struct memory_watch *)(uintptr_t)w, found->path);
        _cleanup_close_ int fd = -1;
        struct tmpfs_use use;
        char device[24];

        if (tmpfs_open(found->path, &fd, &use) != 0)
                return false;
        (void)snprintf(device, sizeof(device), "%u:%u", use.major, use.minor);
        if (strcmp(device, found->device) != 0)
                return false;
        (void)snprintf(path_copy, WB_MEMORY_PATH_MAX + 1, "%s", found->path);
        *item = (Wb__MemoryFilesystem)WB__MEMORY_FILESYSTEM__INIT;
        item->path = (ProtobufCBinaryData){.len = strlen(path_copy), .data = (uint8_t *)path_copy};
        item->size_bytes = use.size_bytes;
        item->used_bytes = use.used_bytes;
        item->percent = f ? f->percent : 0;
        item->fault = (char *)(uintptr_t)(f ? fault_text(f->error) : "");
        return true;
}

static void fill_items(const struct memory_watch *w, struct memory_message *ret)
{
        _cleanup_free_ struct filesystem *found = calloc(FILESYSTEMS_MAX, sizeof(*found));
        _cleanup_free_ char *text = NULL;
        size_t n = 0;

        static_assert(FILESYSTEMS_MAX <= WB_MEMORY_FILESYSTEMS_MAX, "room in the message");
        static_assert(sizeof(found->path) == WB_MEMORY_PATH_MAX + 1, "a path as long as the message takes");

        if (found && io_read_file("/proc/self/mountinfo", 1024u * 1024u, &text, NULL) == 0)
                n = filesystems_find_memory(text, found);
        for (size_t i = 0; i < n; i++) {
                size_t at = ret->limits.n_filesystems;

                if (!fill_item(w, &found[i], &ret->items[at], ret->paths[at]))
                        continue;
                ret->pointers[at] = &ret->items[at];
                ret->limits.n_filesystems++;
        }
        ret->limits.filesystems = ret->pointers;
}

void memory_limits(const struct memory_watch *w, struct memory_message *ret)
{
        wb__memory_limits__init(&ret->limits);
        ret->limits.total_bytes = total_bytes(w);
        ret->limits.reserve_bytes = memory_size_reserve(ret->limits.total_bytes, w->used_before_bytes);
        ret->limits.ceiling_bytes = w->ceiling_bytes;
        ret->limits.ceiling = (char *)(uintptr_t)ceiling_name(w);
        fill_items(w, ret);
}

/* ---- life */

static uint64_t used_bytes(void)
{
        _cleanup_free_ char *text = NULL;
        Wb__MemoryStatistics m = WB__MEMORY_STATISTICS__INIT;

        if (io_read_file("/proc/meminfo", 65536, &text, NULL) == 0)
                statistics_parse_memory(text, &m);
        return m.available_bytes < m.total_bytes ? m.total_bytes - m.available_bytes : 0;
}

static void follow_mounts(struct memory_watch *w, const struct init_memory *init)
{
        _cleanup_close_ int fd = -1;
        struct tmpfs_use use;

        for (size_t i = 0; i < init->n; i++)
                follow(w, init->paths[i], MEMORY_SIZE_PERCENT);
        if (tmpfs_open("/", &fd, &use) == 0)
                follow(w, "/", MEMORY_SIZE_PERCENT);
}

static void hear_uevents(struct memory_watch *w)
{
        int fd = uevent_open();

        if (fd < 0)
                return; /* guest/resume has said so */
        w->uevent_fd = fd;
        (void)event_assign(&w->uevent, w->agent->base, fd, EV_READ | EV_PERSIST, on_uevent, w);
        (void)event_add(&w->uevent, NULL);
}

int memory_watch_new(struct agent *agent, const struct init_memory *init, struct memory_watch **ret)
{
        struct memory_watch *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->agent = agent;
        w->uevent_fd = -1;
        w->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
        w->used_before_bytes = used_bytes();
        (void)event_assign(&w->tick, agent->base, -1, EV_PERSIST, on_tick, w);
        if (agent->pid1 && agent->transport.kind != TRANSPORT_UNIX) {
                w->ceiling = MEMORY_CEILING_FOLLOWS;
                follow_mounts(w, init);
                hear_uevents(w);
                arm(w);
        }
        memory_look(w);
        *ret = w;
        return 0;
}

void memory_watch_free(struct memory_watch *w)
{
        if (!w)
                return;
        (void)event_del(&w->tick);
        if (w->uevent_fd >= 0)
                (void)event_del(&w->uevent);
        close_fd(w->uevent_fd);
        free(w);
}
