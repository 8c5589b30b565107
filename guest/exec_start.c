/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/exec_start.h"
#include "guest/pty.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/wire/limits.h"

#define DEFAULT_PATH  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_UMASK 022

int start_refuse(struct start *s, const char *reason, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(s->detail, sizeof(s->detail), format, ap);
        va_end(ap);
        s->reason = reason;
        return START_E_REFUSED;
}

static void start_init(struct start *s, struct exec_table *t, const Wb__ExecStart *m, const struct texts *argv,
        const struct texts *env)
{
        *s = (struct start){.table = t,
                .m = m,
                .argv_texts = argv,
                .env_texts = env,
                .cgroup_fd = -1,
                .child = {-1, -1, -1},
                .out = {-1, -1},
                .in = -1,
                .report = -1,
                .status = -1,
                .secrets_fd = -1};
}

static void start_done(struct start *s)
{
        free(s->argv);
        free(s->cwd);
        environment_done(&s->env);
        free(s->profile);
        free(s->custom_filter);
        for (size_t i = 0; i < s->secrets_n; i++)
                close_fd(s->secret_fds[i]);
        close_fd(s->secrets_fd);
        close_fd(s->cgroup_fd);
        for (int i = 0; i < 3; i++)
                close_fd(s->child[i]);
        close_fd(s->out[EXEC_STDOUT]);
        close_fd(s->out[EXEC_STDERR]);
        close_fd(s->in);
        close_fd(s->report);
        close_fd(s->status);
}

/* ---- what the command is, and whose */

/* Terminated. protobuf-c has no memory for what is empty. */
static char *copy_of(ProtobufCBinaryData bytes)
{
        return strndup(bytes.len ? (const char *)bytes.data : "", bytes.len);
}

static int take_argv(struct start *s)
{
        size_t n = 0;

        s->argv = calloc(s->argv_texts->n + 1, sizeof(*s->argv));
        if (!s->argv)
                return -ENOMEM;
        for (const char *text = texts_first(s->argv_texts); text; text = texts_next(s->argv_texts, text))
                s->argv[n++] = (char *)(uintptr_t)text;
        return 0;
}

static int take_user(struct start *s)
{
        _cleanup_free_ char *fault = NULL;
        int r = users_resolve(s->m->user, &s->who, &fault);

        if (r == USERS_E_UNKNOWN)
                return start_refuse(s, "user_unknown", "%.400s", *fault ? fault : s->m->user);
        if (r == -E2BIG)
                return start_refuse(s, "user_unknown", "%.400s: more than %d groups", s->m->user, USERS_GROUPS_MAX);
        return r;
}

static int take_cwd(struct start *s)
{
        if (s->m->cwd.len) {
                s->cwd = copy_of(s->m->cwd);
                if (!s->cwd)
                        return -ENOMEM;
        }
        s->spec.cwd = s->cwd;
        return 0;
}

/* ---- environment */

static int add_defaults(struct start *s)
{
        const char *term = s->m->terminal ? "xterm" : "dumb";
        int r = environment_set(&s->env, "PATH", DEFAULT_PATH, strlen(DEFAULT_PATH));

        if (r == 0)
                r = environment_set(&s->env, "HOME", s->who.home, strlen(s->who.home));
        if (r == 0)
                r = environment_set(&s->env, "USER", s->who.name, strlen(s->who.name));
        if (r == 0)
                r = environment_set(&s->env, "TERM", term, strlen(term));
        for (char **text = s->table->agent->workload_env; r == 0 && text && *text; text++)
                r = environment_add(&s->env, *text, strlen(*text));
        return r;
}

static int take_env(struct start *s)
{
        int r = 0;

        if (s->env_texts->n > WB_ARGS_MAX)
                return start_refuse(s, "args_too_long", "more than %u variables", WB_ARGS_MAX);
        for (const char *text = texts_first(s->env_texts); r == 0 && text; text = texts_next(s->env_texts, text)) {
                const char *equals = strchr(text, '=');

                if (!equals || equals == text)
                        return start_refuse(s, "bad_request", "an environment text is no NAME=VALUE");
                r = environment_add(&s->env, text, strlen(text));
        }
        return r;
}

static int finish_env(struct start *s)
{
        return environment_finish(&s->env);
}

/* ---- how large it is */

static uint64_t stack_limit(const struct start *s)
{
        struct rlimit stack = {.rlim_cur = RLIM_INFINITY};

        (void)getrlimit(RLIMIT_STACK, &stack);
        for (size_t i = 0; i < s->rlimits_n; i++)
                if (s->rlimits[i].resource == RLIMIT_STACK)
                        stack = s->rlimits[i].value;
        return stack.rlim_cur;
}

/* A quarter of the stack (fs/exec.c, bprm_stack_limits()), but never less than there was before that. */
static uint64_t kernel_takes(const struct start *s)
{
        uint64_t most = stack_limit(s) / 4;

        if (most > WB_START_MAX_BYTES)
                most = WB_START_MAX_BYTES;
        return most < ARG_MAX ? ARG_MAX : most;
}

/* Adds up what the kernel will; false for a text that is too long by itself. */
static bool count(char *const *texts, uint64_t *bytes)
{
        for (; *texts; texts++) {
                size_t n = strlen(*texts);

                if (n >= WB_ARG_MAX_BYTES)
                        return false;
                *bytes += n + WB_ARG_COST_BYTES;
        }
        return true;
}

/* What is beyond doubt is refused before there is a process; what the kernel counts besides, it tells itself. */
static int check_size(struct start *s)
{
        uint64_t bytes = 0, most = kernel_takes(s);

        if (!count(s->argv, &bytes) || !count(s->env.texts, &bytes))
                return start_refuse(s, "args_too_long", "a text is longer than %u bytes", WB_ARG_MAX_BYTES - 1);
        if (bytes > most)
                return start_refuse(s, "args_too_long",
                        "arguments and environment take %" PRIu64 " bytes, of %" PRIu64 " that this stack allows",
                        bytes, most);
        return 0;
}

/* ---- streams */

/* The command's user owns the pipe, so that it can open /dev/stdout. */
static int make_pipe(struct start *s, int *ret_read, int *ret_write, int *ours)
{
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        *ret_read = ends[0];
        *ret_write = ends[1];
        if (s->who.uid != 0 && fchown(ends[0], s->who.uid, s->who.gid) < 0)
                return -errno;
        return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_terminal(struct start *s)
{
        const Wb__TerminalSize *size = s->m->terminal;
        int r = pty_open(size->rows, size->columns, s->who.uid, &s->out[EXEC_STDOUT], &s->child[0]);

        if (r < 0)
                return start_refuse(s, "internal", "no terminal: %s", strerror(-r));
        s->child[1] = fcntl(s->child[0], F_DUPFD_CLOEXEC, 3);
        s->child[2] = fcntl(s->child[0], F_DUPFD_CLOEXEC, 3);
        s->in = fcntl(s->out[EXEC_STDOUT], F_DUPFD_CLOEXEC, 3);
        return s->child[1] < 0 || s->child[2] < 0 || s->in < 0 ? -EMFILE : 0;
}

static int make_streams(struct start *s)
{
        int r;

        if (s->m->terminal)
                return make_terminal(s);
        r = make_pipe(s, &s->out[EXEC_STDOUT], &s->child[1], &s->out[EXEC_STDOUT]);
        if (r == 0)
                r = make_pipe(s, &s->out[EXEC_STDERR], &s->child[2], &s->out[EXEC_STDERR]);
        if (r < 0)
                return r;
        if (!s->m->stdin_closed && !s->m->detach)
                return make_pipe(s, &s->child[0], &s->in, &s->in);
        s->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return s->child[0] < 0 ? -errno : 0;
}

/* Without cgroups a keeper holds the exec's processes together, and reports. */
static int make_report(struct start *s)
{
        int ends[2];

        if (s->table->cgroups)
                return 0;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        s->exec->report_fd = ends[0];
        s->report = ends[1];
        return io_set_nonblock(ends[0]);
}

static int make_status(struct start *s)
{
        return spawn_status_pipe(&s->exec->status_fd, &s->status);
}

/* ---- the exec */

/* What ps and messages show of argv. */
static int keep_cmd(struct exec *x, char *const *argv)
{
        size_t room = 0;

        for (char *const *a = argv; *a && room < EXEC_CMD_BYTES; a++)
                room += strlen(*a) + 1;
        if (room > EXEC_CMD_BYTES)
                room = EXEC_CMD_BYTES;
        x->cmd = calloc(1, room + 1);
        if (!x->cmd)
                return -ENOMEM;
        for (char *const *a = argv; *a && x->cmd_bytes < room; a++) {
                size_t n = strlen(*a) + 1;

                if (n > room - x->cmd_bytes)
                        n = room - x->cmd_bytes;
                memcpy(x->cmd + x->cmd_bytes, *a, n);
                x->cmd_bytes += n;
        }
        return 0;
}

static bool is_full(const struct exec_table *t)
{
        const struct exec *x;
        unsigned live = 0;

        TAILQ_FOREACH (x, &t->execs, entry)
                live += x->state != EXEC_ENDED || exec_is_lingering(x);
        return live >= EXEC_LIVE_MAX;
}

static int make_exec(struct start *s)
{
        struct exec *x;
        int r;

        if (is_full(s->table))
                return start_refuse(s, "internal", "%d execs run already", EXEC_LIVE_MAX);
        r = exec_new(s->table, &s->exec);
        if (r < 0)
                return r;
        x = s->exec;
        x->detached = s->m->detach;
        x->terminal = s->m->terminal != NULL;
        x->timeout_ms = s->m->timeout_ms;
        x->cwd = strdup(s->cwd ? s->cwd : s->who.home);
        return x->cwd ? keep_cmd(x, s->argv) : -ENOMEM;
}

static int prepare(struct start *s)
{
        int (*const steps[])(struct start *) = {take_argv, take_user, take_cwd, add_defaults, take_env,
                start_take_secrets, finish_env, start_take_rlimits, check_size, start_take_caps, start_take_seccomp,
                make_exec, start_take_cgroup, make_streams, make_report, make_status};

        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
                int r = steps[i](s);

                if (r != 0)
                        return r;
        }
        return 0;
}

static void specify(struct start *s)
{
        struct exec *x = s->exec;
        struct spawn *spec = &s->spec;

        spec->argv = s->argv;
        spec->env = s->env.texts;
        spec->search = environment_get(&s->env, "PATH");
        spec->who = &s->who;
        memcpy(spec->stdio, s->child, sizeof(spec->stdio));
        spec->terminal = x->terminal;
        spec->fds = s->secret_fds;
        spec->fds_n = s->secrets_n;
        spec->secrets_fd = x->secrets_fd = steal_fd(&s->secrets_fd);
        spec->umask = s->m->umask_set ? s->m->umask & 0777 : DEFAULT_UMASK;
        spec->nice = s->m->nice_set ? s->m->nice : 0;
        spec->nice_asked = s->m->nice_set;
        spec->rlimits = s->rlimits;
        spec->rlimits_n = s->rlimits_n;
        spec->no_new_privs = s->m->no_new_privs;
        spec->cgroup_fd = s->cgroup_fd;
        spec->report_fd = s->report;
}

/* Whoever has asked looks at it: what becomes of it is told to those. */
static int hand_over(struct start *s, struct control *c)
{
        struct viewer *v;
        int r = viewer_new(s->exec, c, s->m->output_window_bytes, &v);

        if (r < 0)
                return r;
        v->opener = !s->exec->detached;
        v->owner = !s->exec->detached;
        return 0;
}

/* The process comes last: behind a fork, each page of memory that is written is copied. */
static int start_process(struct start *s, struct control *c)
{
        struct exec *x = s->exec;
        int r;

        specify(s);
        r = exec_open_streams(x, s->out, s->in);
        if (r < 0)
                return r;
        s->out[EXEC_STDOUT] = s->out[EXEC_STDERR] = s->in = -1;
        exec_begin(x);
        r = hand_over(s, c);
        return r < 0 ? r : spawn(&s->spec, s->status, s->report < 0 ? &x->pid : &x->keeper);
}

static void give_up(struct start *s, struct control *c, int r)
{
        const char *reason = r < 0 ? "internal" : s->reason, *detail = r < 0 ? strerror(-r) : s->detail;
        struct exec *x = s->exec;

        if (x && !LIST_EMPTY(&x->viewers)) {
                viewers_refuse(x, reason, detail);
        } else {
                (void)control_send_error(c, reason, detail);
                control_finish(c);
        }
        if (!x)
                return;
        exec_sweep(x);
        exec_free(x);
}

void exec_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m, const struct texts *argv,
        const struct texts *env)
{
        struct start s;
        int r;

        start_init(&s, t, m, argv, env);
        r = prepare(&s);
        if (r == 0)
                r = start_process(&s, c);
        if (r != 0)
                give_up(&s, c, r);
        start_done(&s);
}

void exec_open_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m)
{
        struct texts argv = {0}, env = {0};

        if (m->more) {
                exec_gather(t, c, m);
                return;
        }
        if (texts_add(&argv, m->argv, m->n_argv) == 0 && texts_add(&env, m->env, m->n_env) == 0) {
                exec_start(t, c, m, &argv, &env);
        } else {
                (void)control_send_error(c, "internal", "no memory");
                control_finish(c);
        }
        texts_done(&argv);
        texts_done(&env);
}
