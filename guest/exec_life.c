/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/exec_internal.h"
#include "guest/keeper.h"
#include "guest/names.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

#define EXIT_TIMEOUT 124 /* as timeout(1) */
#define EXIT_KILLED  (128 + SIGKILL)

#define NAME_BYTES 128 /* of a command, in the detail of a result: room is left for what is said of it */

#define SIGNAL_MAX 64 /* SIGRTMAX of the kernel's */

/* A stream most often ends because the command does: for as long its end waits for the result, to be told with it. */
#define ENDING_US 1000

static void wait_ms(struct exec *x, uint64_t ms)
{
        struct timeval t = {.tv_sec = (time_t)(ms / MSEC_PER_SEC), .tv_usec = (suseconds_t)(ms % MSEC_PER_SEC) * 1000};

        (void)evtimer_add(&x->timer, &t);
}

/* The one place that changes the state, and what the timer means in it. */
static void set_state(struct exec *x, enum exec_state state)
{
        static const unsigned next[] = {
                [EXEC_STARTING] = 1u << EXEC_RUNNING,
                [EXEC_RUNNING] = 1u << EXEC_DRAINING,
                [EXEC_DRAINING] = 1u << EXEC_ENDED,
                [EXEC_ENDED] = 0,
        };

        assert(next[x->state] & 1u << state);
        x->state = state;
        if (state == EXEC_DRAINING)
                wait_ms(x, EXEC_DRAIN_MS);
        if (state == EXEC_ENDED) {
                (void)evtimer_del(&x->timer);
                (void)evtimer_del(&x->ending);
        }
}

/* ---- the end */

void exec_sweep(struct exec *x)
{
        struct exec_table *t = x->table;

        if (!x->has_cgroup)
                return;
        for (int attempt = 0; attempt < 2; attempt++) {
                int r = cgroup_remove(t->cgroups, x->id);

                if (r != -EBUSY) {
                        if (r < 0)
                                log_write_errno(LOG_LEVEL_WARNING, r, "exec %s: its cgroup stays", x->id);
                        x->has_cgroup = false;
                        x->watch = -1;
                        x->secrets_fd = close_fd(x->secrets_fd);
                        return;
                }
                /* Watched first, then tried again: it may have become empty in between. */
                if (x->watch >= 0)
                        return;
                x->watch = cgroup_watch(t->cgroups, x->id, t->inotify_fd);
        }
}

static bool is_oom(const struct exec *x)
{
        return x->cause == EXEC_BY_ITSELF && x->usage.oom_kills && WIFSIGNALED(x->wait_status) &&
               WTERMSIG(x->wait_status) == SIGKILL;
}

static void kill_all(struct exec *x)
{
        if (x->has_cgroup) {
                int r = cgroup_kill(x->table->cgroups, x->id);

                if (r < 0)
                        log_errno(r, "exec %s: cannot kill its cgroup", x->id);
        }
        if (x->keeper > 0)
                (void)kill(x->keeper, KEEPER_KILL);
        /* Not in its cgroup yet. The pid is the leader's as long as nobody has waited for it. */
        else if (x->state < EXEC_DRAINING && x->pid > 0) {
                (void)kill(-x->pid, SIGKILL);
                (void)kill(x->pid, SIGKILL);
        }
}

static void end_if_drained(struct exec *x)
{
        if (x->state != EXEC_DRAINING)
                return;
        for (int i = 0; i < EXEC_STREAMS; i++)
                if (x->output[i].state != OUTPUT_CLOSED)
                        return;
        if (x->has_cgroup)
                cgroup_usage(x->table->cgroups, x->id, &x->usage);
        if (is_oom(x))
                kill_all(x); /* half of a workload is no workload */
        set_state(x, EXEC_ENDED);
        viewers_pump(x); /* first: the kernel takes its time to remove a cgroup */
        exec_sweep(x);
        exec_keep(x);
}

/* ---- output and input */

static void on_output_moved(struct output *o, void *userdata)
{
        const struct timeval later = {.tv_usec = ENDING_US};
        struct exec *x = userdata;

        end_if_drained(x);
        if (o->state != OUTPUT_CLOSED || x->state != EXEC_RUNNING)
                viewers_pump(x);
        else if (!evtimer_pending(&x->ending, NULL))
                (void)evtimer_add(&x->ending, &later);
}

static void on_ending(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        viewers_pump(userdata);
}

static void on_input_written(struct input *in, void *userdata)
{
        (void)in;
        viewers_give_input_credit(userdata);
}

int exec_open_streams(struct exec *x, const int out_fds[EXEC_STREAMS], int in_fd)
{
        struct event_base *base = x->table->agent->base;

        if (in_fd >= 0) {
                int r = input_open(&x->input, base, in_fd, x->terminal, on_input_written, x);

                if (r < 0)
                        return r;
        }
        for (int i = 0; i < EXEC_STREAMS; i++)
                if (out_fds[i] >= 0)
                        output_open(&x->output[i], base, out_fds[i], on_output_moved, x);
        return 0;
}

/* ---- the start */

/*
 * What the keeper has told: the pid, then the end. True when that is there; *ret_end is it.
 */
static bool read_report(struct exec *x, struct keeper_report *ret_end)
{
        struct keeper_report r;
        ssize_t n = 0;

        while (x->report_fd >= 0 && (n = read(x->report_fd, &r, sizeof(r))) == (ssize_t)sizeof(r)) {
                x->pid = r.pid;
                if (!r.ended && !ret_end)
                        return false;
                if (r.ended && ret_end) {
                        *ret_end = r;
                        return true;
                }
        }
        if (x->report_fd >= 0 && n == 0)
                (void)event_del(&x->report); /* the keeper has gone without a word: that it is reaped tells */
        return false;
}

/* Whether the command was executed: true if that is known now. */
static bool read_status(struct exec *x)
{
        struct spawn_failure failure;
        ssize_t n;

        if (x->status_fd < 0)
                return true;
        n = read(x->status_fd, &failure, sizeof(failure));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return false;
        if (n == (ssize_t)sizeof(failure)) {
                x->failure = failure;
                x->failed = true;
        }
        (void)event_del(&x->status);
        x->status_fd = close_fd(x->status_fd);
        if (!x->pid)
                (void)read_report(x, NULL); /* written before: the pid */
        if (!x->pid && !x->failed) {        /* the keeper went before there was a command */
                x->failure = (struct spawn_failure){.stage = SPAWN_INTERNAL, .error = ESRCH};
                x->failed = true;
        }
        return true;
}

static void send_pending_signals(struct exec *x)
{
        for (int i = 1; i <= SIGNAL_MAX; i++)
                if (x->pending_signals >> (i - 1) & 1)
                        exec_signal(x, i);
        x->pending_signals = 0;
}

static void run(struct exec *x)
{
        set_state(x, EXEC_RUNNING);
        viewers_say_started(x);
}

static void on_status(evutil_socket_t fd, short events, void *userdata)
{
        struct exec *x = userdata;

        (void)fd;
        (void)events;
        if (!read_status(x) || x->failed)
                return; /* a child that failed is about to be reaped, and that tells */
        run(x);
        send_pending_signals(x);
        viewers_pump(x);
}

static void on_report(evutil_socket_t fd, short events, void *userdata)
{
        struct exec *x = userdata;
        struct keeper_report end;

        (void)fd;
        (void)events;
        if (read_report(x, &end))
                exec_leader_ended(x, end.wait_status, &end.usage);
}

static void on_timer(evutil_socket_t fd, short events, void *userdata)
{
        struct exec *x = userdata;

        (void)fd;
        (void)events;
        if (x->state < EXEC_DRAINING) {
                exec_end_all(x, EXEC_BY_TIMEOUT);
                return;
        }
        for (int i = 0; i < EXEC_STREAMS && x->state == EXEC_DRAINING; i++)
                output_cut(&x->output[i]);
}

void exec_begin(struct exec *x)
{
        struct event_base *base = x->table->agent->base;

        x->started_ns = clock_monotonic_ns();
        (void)evtimer_assign(&x->timer, base, on_timer, x);
        if (x->timeout_ms) /* from here on: what hangs in a filesystem before execve(2) is ended as well */
                wait_ms(x, x->timeout_ms);
        (void)evtimer_assign(&x->ending, base, on_ending, x);
        (void)event_assign(&x->status, base, x->status_fd, EV_READ | EV_PERSIST, on_status, x);
        (void)event_add(&x->status, NULL);
        if (x->report_fd < 0)
                return;
        (void)event_assign(&x->report, base, x->report_fd, EV_READ | EV_PERSIST, on_report, x);
        (void)event_add(&x->report, NULL);
}

/* ---- why nothing was started */

static const char *reason_of_execve(int error)
{
        switch (error) {
        case ENOENT:
        case ENOTDIR:
        case ELOOP:
        case ENAMETOOLONG: return "not_found";
        case E2BIG: return "args_too_long";
        case EAGAIN:
        case ENOMEM:
        case EMFILE:
        case ENFILE: return "internal";
        default: return "not_executable";
        }
}

static void refuse(struct exec *x)
{
        const struct spawn_failure *f = &x->failure;
        const char *why = strerror(f->error), *reason = "internal";
        char detail[512];

        switch ((enum spawn_stage)f->stage) {
        case SPAWN_EXEC:
                reason = reason_of_execve(f->error);
                (void)snprintf(detail, sizeof(detail), "%.400s: %s", x->cmd, why);
                break;
        case SPAWN_INTERPRETER:
                reason = "not_found";
                (void)snprintf(detail, sizeof(detail), "%.400s: what it names as its interpreter is not there", x->cmd);
                break;
        case SPAWN_CWD:
                reason = "bad_cwd";
                (void)snprintf(detail, sizeof(detail), "%.400s: %s", x->cwd, why);
                break;
        case SPAWN_RLIMIT:
                reason = "limit_unavailable";
                (void)snprintf(detail, sizeof(detail), "rlimit %s: %s", rlimit_name(f->index), why);
                break;
        case SPAWN_NICE:
                reason = "limit_unavailable";
                (void)snprintf(detail, sizeof(detail), "nice: %s", why);
                break;
        case SPAWN_CAPS:
                reason = "limit_unavailable";
                (void)snprintf(detail, sizeof(detail), "capabilities: %s", why);
                break;
        case SPAWN_SECCOMP:
                reason = "limit_unavailable";
                (void)snprintf(detail, sizeof(detail), "seccomp: %s", why);
                break;
        case SPAWN_USER: (void)snprintf(detail, sizeof(detail), "cannot become this user: %s", why); break;
        case SPAWN_FILES: (void)snprintf(detail, sizeof(detail), "mount of secrets: %s", why); break;
        case SPAWN_CGROUP: (void)snprintf(detail, sizeof(detail), "cgroup: %s", why); break;
        case SPAWN_INTERNAL:
        default: (void)snprintf(detail, sizeof(detail), "descriptors or session: %s", why); break;
        }
        viewers_refuse(x, reason, detail);
}

/* ---- from outside */

/* Nobody is left of the exec. A keeper that was killed itself has not told the command's end: then its own stands for
 * it. */
void exec_keeper_ended(struct exec *x, int wait_status, const struct rusage *usage)
{
        struct keeper_report end = {.wait_status = wait_status, .usage = *usage};

        x->keeper = 0;
        x->secrets_fd = close_fd(x->secrets_fd);
        if (x->state >= EXEC_DRAINING)
                return;
        (void)read_report(x, &end);
        exec_leader_ended(x, end.wait_status, &end.usage);
}

static void close_report(struct exec *x)
{
        if (x->report_fd < 0)
                return;
        (void)event_del(&x->report);
        x->report_fd = close_fd(x->report_fd);
}

void exec_leader_ended(struct exec *x, int wait_status, const struct rusage *usage)
{
        (void)read_status(x);
        close_report(x);
        if (x->failed) {
                refuse(x);
                exec_sweep(x);
                exec_free(x);
                return;
        }
        if (x->state == EXEC_STARTING)
                run(x);
        x->ended_ns = clock_monotonic_ns();
        x->wait_status = wait_status;
        x->rusage = *usage;
        input_done(&x->input);
        for (int i = 0; i < EXEC_STREAMS; i++)
                output_leader_ended(&x->output[i]);
        set_state(x, EXEC_DRAINING);
        send_pending_signals(x); /* to those of its group that are left: its pid may be another's by now */
        end_if_drained(x);
        viewers_pump(x);
}

void exec_signal(struct exec *x, int signal)
{
        if (signal < 1 || signal > SIGNAL_MAX)
                return;
        if (x->state == EXEC_STARTING)
                x->pending_signals |= UINT64_C(1) << (signal - 1);
        else if (x->state == EXEC_RUNNING)
                (void)kill(-x->pid, signal);
        else if (x->has_cgroup)
                /* The group's number may be another's by now: only those in the cgroup are meant. */
                (void)cgroup_signal_group(x->table->cgroups, x->id, x->pid, signal);
}

void exec_end_all(struct exec *x, enum exec_cause cause)
{
        if (x->state < EXEC_DRAINING && x->cause == EXEC_BY_ITSELF)
                x->cause = cause;
        kill_all(x);
}

/* ---- the result */

const char *exec_reason(const struct exec *x)
{
        switch (x->cause) {
        case EXEC_BY_TIMEOUT: return "timeout";
        case EXEC_BY_KILL: return "killed";
        case EXEC_BY_CLIENT_GONE: return "client_gone";
        case EXEC_BY_ITSELF: break;
        }
        if (is_oom(x))
                return "oom";
        return WIFSIGNALED(x->wait_status) ? "signaled" : "exited";
}

int exec_status(const struct exec *x)
{
        switch (x->cause) {
        case EXEC_BY_TIMEOUT: return EXIT_TIMEOUT;
        case EXEC_BY_KILL:
        case EXEC_BY_CLIENT_GONE: return EXIT_KILLED;
        case EXEC_BY_ITSELF: break;
        }
        if (WIFSIGNALED(x->wait_status))
                return 128 + WTERMSIG(x->wait_status);
        return WEXITSTATUS(x->wait_status);
}

static uint64_t timeval_ns(struct timeval t)
{
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_usec * NSEC_PER_USEC;
}

/* The cgroup counts the whole tree; without one there is what wait4(2) says of the leader and those it waited for. */
void exec_fill_result(const struct exec *x, Wb__ExecResult *result, char *detail, size_t detail_room)
{
        const struct cgroup_usage *usage = &x->usage;
        char name[NAME_BYTES];

        detail[0] = '\0';
        control_printable(x->cmd, name, sizeof(name));
        if (is_oom(x) && x->limits.memory_bytes)
                (void)snprintf(detail, detail_room,
                        "%s: %" PRIu64 " killed for lack of memory, limit %" PRIu64 " bytes", name, usage->oom_kills,
                        x->limits.memory_bytes);
        else if (is_oom(x))
                (void)snprintf(detail, detail_room,
                        "%s: %" PRIu64 " killed for lack of memory, that of all commands together", name,
                        usage->oom_kills);
        result->id = (char *)(uintptr_t)x->id;
        result->reason = (char *)(uintptr_t)exec_reason(x);
        result->detail = detail;
        result->tree = (char *)(uintptr_t)(x->table->cgroups ? "cgroup" : "subreaper");
        result->exit_code = exec_status(x);
        result->signal = WIFSIGNALED(x->wait_status) ? (uint32_t)WTERMSIG(x->wait_status) : 0;
        result->core_dumped = WIFSIGNALED(x->wait_status) && WCOREDUMP(x->wait_status);
        result->truncated = x->output[EXEC_STDOUT].cut || x->output[EXEC_STDERR].cut;
        result->oom_kills = usage->oom_kills;
        result->stdout_bytes = x->output[EXEC_STDOUT].replay.end;
        result->stderr_bytes = x->output[EXEC_STDERR].replay.end;
        result->duration_ns = x->ended_ns - x->started_ns;
        result->user_ns = usage->user_ns ? usage->user_ns : timeval_ns(x->rusage.ru_utime);
        result->system_ns = usage->system_ns ? usage->system_ns : timeval_ns(x->rusage.ru_stime);
        result->peak_memory_bytes =
                usage->peak_memory_bytes ? usage->peak_memory_bytes : (uint64_t)x->rusage.ru_maxrss * 1024;
}
