/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/exec.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "guest/exec_internal.h"
#include "guest/secret_mount.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"

/* Of a list's answer, what argv may take in all; and how many words it may have, which each cost whoever unpacks them
 * more than their bytes (proto/wire/codec). */
#define LIST_CMD_BYTES (WB_FRAME_MAX_BYTES / 2)
#define LIST_CMD_WORDS (WB_FRAME_MAX_BYTES / 32)

/* ---- one in the table */

struct exec *exec_find(struct exec_table *t, const char *id)
{
        struct exec *x;

        TAILQ_FOREACH (x, &t->execs, entry)
                if (strcmp(x->id, id) == 0)
                        return x;
        return NULL;
}

int exec_new(struct exec_table *t, struct exec **ret)
{
        struct exec *x = calloc(1, sizeof(*x));
        uint32_t mark;

        if (!x)
                return -ENOMEM;
        /* Told apart also after a restart of the agent; nobody is to guess it, and nobody needs to be kept from it. */
        if (getrandom(&mark, sizeof(mark), GRND_NONBLOCK) != (ssize_t)sizeof(mark))
                mark = (uint32_t)getpid();
        (void)snprintf(x->id, sizeof(x->id), "x%u-%08x", ++t->counter, mark);
        x->table = t;
        x->watch = x->secrets_fd = x->status_fd = x->report_fd = x->input.fd = -1;
        for (int i = 0; i < EXEC_STREAMS; i++)
                x->output[i] = (struct output){.fd = -1, .state = OUTPUT_CLOSED};
        LIST_INIT(&x->viewers);
        TAILQ_INSERT_TAIL(&t->execs, x, entry);
        *ret = x;
        return 0;
}

void exec_free(struct exec *x)
{
        viewers_refuse(x, "internal", "the agent ends");
        TAILQ_REMOVE(&x->table->execs, x, entry);
        if (x->status_fd >= 0) {
                (void)event_del(&x->status);
                close_fd(x->status_fd);
        }
        if (x->report_fd >= 0) {
                (void)event_del(&x->report);
                close_fd(x->report_fd);
        }
        if (evtimer_initialized(&x->timer))
                (void)evtimer_del(&x->timer);
        if (evtimer_initialized(&x->ending))
                (void)evtimer_del(&x->ending);
        if (evtimer_initialized(&x->patience))
                (void)evtimer_del(&x->patience);
        for (int i = 0; i < EXEC_STREAMS; i++)
                output_done(&x->output[i]);
        input_done(&x->input);
        close_fd(x->secrets_fd);
        free(x->cmd);
        free(x->cwd);
        free(x);
}

bool exec_is_held(const struct exec *x)
{
        return x->has_cgroup || x->keeper > 0;
}

bool exec_is_lingering(const struct exec *x)
{
        return x->state == EXEC_ENDED && exec_is_held(x);
}

/* One that nobody looks at and of which nothing is left but its result. */
static bool is_done(const struct exec *x)
{
        return x->state == EXEC_ENDED && !exec_is_held(x) && LIST_EMPTY(&x->viewers);
}

void exec_keep(struct exec *x)
{
        struct exec_table *t = x->table;
        unsigned ended = 0;
        struct exec *before;

        TAILQ_REMOVE(&t->execs, x, entry);
        TAILQ_INSERT_TAIL(&t->execs, x, entry);
        /* From the latest on: those that linger take no place from what ended after them. */
        for (; x; x = before) {
                before = TAILQ_PREV(x, exec_list, entry);
                if (x->state == EXEC_ENDED && ++ended > EXEC_KEPT_MAX && is_done(x))
                        exec_free(x);
        }
}

/* ---- conversations */

struct exec *exec_find_or_refuse(struct exec_table *t, struct control *c, const char *id)
{
        struct exec *x = exec_find(t, id);

        if (!x) {
                (void)control_send_error(c, "exec_unknown", id);
                control_finish(c);
        }
        return x;
}

/* From where the client asks, or from the oldest byte that is still there; the first chunk says which. */
static uint64_t clamp_offset(const struct output *o, uint64_t offset)
{
        if (offset < o->replay.start)
                return o->replay.start;
        return offset > o->replay.end ? o->replay.end : offset;
}

void exec_open_attach(struct exec_table *t, struct control *c, const Wb__ExecAttach *m)
{
        struct exec *x = exec_find_or_refuse(t, c, m->id);
        struct viewer *v;

        if (!x)
                return;
        if (viewer_new(x, c, m->output_window_bytes, &v) < 0) {
                (void)control_send_error(c, "internal", "no memory");
                control_finish(c);
                return;
        }
        v->cursor[EXEC_STDOUT].offset = clamp_offset(&x->output[EXEC_STDOUT], m->stdout_offset);
        v->cursor[EXEC_STDERR].offset = clamp_offset(&x->output[EXEC_STDERR], m->stderr_offset);
        if (x->state == EXEC_STARTING)
                return; /* it is told with the others */
        viewer_say_started(v);
        viewer_pump(v);
}

void exec_open_kill(struct exec_table *t, struct control *c, const Wb__ExecKill *m)
{
        struct exec *x = exec_find_or_refuse(t, c, m->id);
        Wb__FromAgent answer = WB__FROM_AGENT__INIT;
        Wb__Ok ok = WB__OK__INIT;

        if (!x)
                return;
        if (m->signal)
                exec_signal(x, m->signal <= INT32_MAX ? (int)m->signal : 0);
        else
                exec_end_all(x, EXEC_BY_KILL);
        answer.body_case = WB__FROM_AGENT__BODY_OK;
        answer.ok = &ok;
        (void)control_send(c, &answer);
        control_finish(c);
}

static const char *state_name(const struct exec *x)
{
        if (x->state != EXEC_ENDED)
                return "running";
        return exec_is_lingering(x) ? "lingering" : "exited";
}

/* An entry with room for its words behind it, one of share_of that go into one answer. */
struct listed {
        Wb__ExecEntry entry;
        ProtobufCBinaryData words[];
};

static struct listed *list_one(const struct exec *x, size_t share_of)
{
        size_t most_bytes = LIST_CMD_BYTES / share_of, most_words = LIST_CMD_WORDS / share_of;
        size_t bytes = x->cmd_bytes < most_bytes ? x->cmd_bytes : most_bytes, words = 0;
        struct listed *l;

        for (size_t i = 0; i < bytes; i++)
                words += x->cmd[i] == '\0';
        words += bytes && x->cmd[bytes - 1] != '\0';
        if (words > most_words)
                words = most_words;
        l = calloc(1, sizeof(*l) + words * sizeof(*l->words));
        if (!l)
                return NULL;
        wb__exec_entry__init(&l->entry);
        l->entry.id = (char *)(uintptr_t)x->id;
        l->entry.pid = x->pid;
        l->entry.state = (char *)(uintptr_t)state_name(x);
        l->entry.exit_set = x->state == EXEC_ENDED;
        l->entry.exit = l->entry.exit_set ? exec_status(x) : 0;
        l->entry.cmd = l->words;
        for (size_t at = 0; l->entry.n_cmd < words;) {
                size_t n = strnlen(x->cmd + at, bytes - at);

                l->words[l->entry.n_cmd++] = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)x->cmd + at};
                at += n + 1;
        }
        return l;
}

void exec_open_list(struct exec_table *t, struct control *c)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__ExecEntries entries = WB__EXEC_ENTRIES__INIT;
        const struct exec *x;
        size_t n = 0;

        TAILQ_FOREACH (x, &t->execs, entry)
                n++;
        entries.entries = calloc(n + 1, sizeof(Wb__ExecEntry *));
        TAILQ_FOREACH (x, &t->execs, entry) {
                struct listed *l = entries.entries ? list_one(x, n) : NULL;

                if (l)
                        entries.entries[entries.n_entries++] = &l->entry;
        }
        m.body_case = WB__FROM_AGENT__BODY_EXEC_ENTRIES;
        m.exec_entries = &entries;
        if (entries.n_entries < n || control_send(c, &m) < 0)
                (void)control_send_error(c, "internal", "no memory");
        control_finish(c);
        for (size_t i = 0; i < entries.n_entries; i++)
                free(entries.entries[i]);
        free(entries.entries);
}

/* ---- the table */

/* Some lingering cgroup changed; which one is what the kernel says. */
static void on_emptied(evutil_socket_t fd, short events, void *userdata)
{
        struct exec_table *t = userdata;
        char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
        ssize_t n = read(fd, buffer, sizeof(buffer));

        (void)events;
        for (ssize_t at = 0; at < n;) {
                const struct inotify_event *e = (const struct inotify_event *)(const void *)(buffer + at);
                struct exec *x;

                TAILQ_FOREACH (x, &t->execs, entry)
                        if (x->watch == e->wd && x->state == EXEC_ENDED) {
                                exec_sweep(x);
                                break;
                        }
                at += (ssize_t)(sizeof(*e) + e->len);
        }
}

static uint64_t bounding_set(void)
{
        uint64_t all = 0;

        for (int cap = 0; cap < 64; cap++) {
                int r = prctl(PR_CAPBSET_READ, cap);

                if (r < 0)
                        break; /* the kernel has no more */
                all |= (uint64_t)r << cap;
        }
        return all;
}

int exec_table_new(struct agent *agent, struct exec_table **ret)
{
        struct exec_table *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return -ENOMEM;
        t->agent = agent;
        t->caps = bounding_set();
        TAILQ_INIT(&t->execs);
        (void)signal(SIGPIPE, SIG_IGN); /* a command that closes its stdin is no reason to end */
        t->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        if (t->inotify_fd < 0) {
                r = -errno;
                free(t);
                return r;
        }
        (void)event_assign(&t->emptied, agent->base, t->inotify_fd, EV_READ | EV_PERSIST, on_emptied, t);
        (void)event_add(&t->emptied, NULL);
        r = cgroup_tree_new(&t->cgroups);
        if (r < 0 && r != -EOPNOTSUPP) {
                exec_table_free(t);
                return r;
        }
        *ret = t;
        return 0;
}

void exec_table_free(struct exec_table *t)
{
        struct exec *x;

        if (!t)
                return;
        while ((x = TAILQ_FIRST(&t->execs))) {
                if (x->state != EXEC_ENDED || exec_is_held(x))
                        exec_end_all(x, EXEC_BY_KILL);
                exec_free(x);
        }
        (void)event_del(&t->emptied);
        close_fd(t->inotify_fd);
        cgroup_tree_free(t->cgroups);
        free(t);
}

void exec_table_forget_secret(struct exec_table *t, const char *name)
{
        struct exec *x;

        TAILQ_FOREACH (x, &t->execs, entry)
                if (x->secrets_fd >= 0)
                        secret_mount_remove(x->secrets_fd, name);
}

int exec_table_freeze(struct exec_table *t)
{
        return t->cgroups ? cgroup_tree_freeze(t->cgroups, true) : -EOPNOTSUPP;
}

int exec_table_thaw(struct exec_table *t)
{
        return t->cgroups ? cgroup_tree_freeze(t->cgroups, false) : -EOPNOTSUPP;
}

int exec_table_ceiling(struct exec_table *t, uint64_t bytes)
{
        return cgroup_tree_ceiling(t->cgroups, bytes);
}

unsigned exec_table_running(const struct exec_table *t)
{
        const struct exec *x;
        unsigned n = 0;

        TAILQ_FOREACH (x, &t->execs, entry)
                n += x->state != EXEC_ENDED;
        return n;
}

static void fill_statistics(const struct exec *x, struct exec_statistics *ret)
{
        Wb__ExecStatistics *s = &ret->message;
        struct cgroup_limits limits;
        struct cgroup_usage usage;

        *s = (Wb__ExecStatistics)WB__EXEC_STATISTICS__INIT;
        s->id = (char *)(uintptr_t)x->id;
        s->state = (char *)(uintptr_t)state_name(x);
        s->known = x->has_cgroup;
        if (!x->has_cgroup)
                return;
        cgroup_usage(x->table->cgroups, x->id, &usage);
        s->user_ns = usage.user_ns;
        s->system_ns = usage.system_ns;
        s->memory_bytes = usage.memory_bytes;
        s->peak_memory_bytes = usage.peak_memory_bytes;
        s->pids = usage.pids;
        limits = cgroup_limits_in_force(x->table->cgroups, x->id);
        ret->limits = (Wb__ExecLimits)WB__EXEC_LIMITS__INIT;
        exec_limits_to_message(&limits, &ret->limits);
        s->limits = &ret->limits;
}

size_t exec_table_statistics(const struct exec_table *t, struct exec_statistics *ret, size_t room)
{
        const struct exec *x;
        size_t n = 0;

        TAILQ_FOREACH (x, &t->execs, entry)
                if (n < room && (x->state != EXEC_ENDED || exec_is_lingering(x)))
                        fill_statistics(x, &ret[n++]);
        return n;
}

bool exec_table_reaped(struct exec_table *t, pid_t pid, int wait_status, const struct rusage *usage)
{
        struct exec *x;

        TAILQ_FOREACH (x, &t->execs, entry) {
                if (x->keeper == pid) {
                        exec_keeper_ended(x, wait_status, usage);
                        return true;
                }
                if (x->pid == pid && x->state < EXEC_DRAINING) {
                        exec_leader_ended(x, wait_status, usage);
                        return true;
                }
        }
        return false;
}
