/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/environment.h"
#include "guest/exec_internal.h"
#include "guest/names.h"
#include "guest/pty.h"
#include "guest/seccomp_profile.h"
#include "guest/secret.h"
#include "guest/secret_mount.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/wire/limits.h"

#define DEFAULT_PATH  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_UMASK 022

/* The reason has been put down in the request: nothing is started. */
#define START_E_REFUSED 1

/* A request on its way to a process; whatever happens, start_done() frees it all. */
struct start {
        struct exec_table *table;
        const Wb__ExecStart *m;
        struct exec *exec;
        const char *reason;
        char detail[512];

        struct identity who;
        char **argv;
        struct environment env;
        char *cwd;
        struct spawn_rlimit rlimits[RLIM_NLIMITS + 1];
        size_t rlimits_n;
        int secret_fds[WB_SECRETS_MAX]; /* sealed; handed down as they are */
        size_t secrets_n;
        struct secret_file files[WB_SECRETS_MAX]; /* values of the store: nothing of it goes before they are copied */
        size_t files_n;
        int secrets_fd; /* of their mount */
        struct seccomp_program *profile;
        struct sock_filter *custom_filter;
        int cgroup_fd;
        int child[3];          /* the command's ends */
        int out[EXEC_STREAMS]; /* ours */
        int in;
        int report; /* the keeper's end */
        struct spawn spec;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct start *s, const char *reason, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(s->detail, sizeof(s->detail), format, ap);
        va_end(ap);
        s->reason = reason;
        return START_E_REFUSED;
}

static void start_init(struct start *s, struct exec_table *t, const Wb__ExecStart *m)
{
        *s = (struct start){.table = t,
                .m = m,
                .cgroup_fd = -1,
                .child = {-1, -1, -1},
                .out = {-1, -1},
                .in = -1,
                .report = -1,
                .secrets_fd = -1};
}

static void start_done(struct start *s)
{
        for (size_t i = 0; s->argv && i < s->m->n_argv; i++)
                free(s->argv[i]);
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
}

/* ---- what the command is, and whose */

/* Terminated. protobuf-c has no memory for what is empty. */
static char *copy_of(ProtobufCBinaryData bytes)
{
        return strndup(bytes.len ? (const char *)bytes.data : "", bytes.len);
}

static int take_argv(struct start *s)
{
        s->argv = calloc(s->m->n_argv + 1, sizeof(*s->argv));
        if (!s->argv)
                return -ENOMEM;
        for (size_t i = 0; i < s->m->n_argv; i++) {
                s->argv[i] = copy_of(s->m->argv[i]);
                if (!s->argv[i])
                        return -ENOMEM;
        }
        return 0;
}

static int take_user(struct start *s)
{
        _cleanup_free_ char *fault = NULL;
        int r = users_resolve(s->m->user, &s->who, &fault);

        if (r == USERS_E_UNKNOWN)
                return refuse(s, "user_unknown", "%.400s", fault);
        if (r == -E2BIG)
                return refuse(s, "user_unknown", "%.400s: more than %d groups", s->m->user, USERS_GROUPS_MAX);
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

        for (size_t i = 0; r == 0 && i < s->m->n_env; i++) {
                const char *text = (const char *)s->m->env[i].data;
                size_t n = s->m->env[i].len;
                const char *equals = memchr(text, '=', n);

                if (!equals || equals == text)
                        return refuse(s, "bad_request", "an environment text is no NAME=VALUE");
                r = environment_add(&s->env, text, n);
        }
        return r;
}

/* ---- secrets */

/* The value in an anonymous file that nobody can change any more. */
static int make_sealed(const char *name, const uint8_t *value, size_t n, int *ret_fd)
{
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        int r;

        if (fd < 0)
                return -errno;
        r = n ? io_write_full(fd, value, n) : 0;
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0 || fchmod(fd, 0444) < 0 ||
                fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* NAME_FILE=path */
static int set_file_name(struct start *s, const char *name, const char *path)
{
        char variable[WB_SECRET_NAME_MAX + sizeof("_FILE")];

        (void)snprintf(variable, sizeof(variable), "%s_FILE", name);
        return environment_set(&s->env, variable, path, strlen(path));
}

/* A sealed file that the command inherits. */
static int hand_down(struct start *s, const Wb__SecretUse *use, const uint8_t *value, size_t n)
{
        char path[sizeof("/proc/self/fd/") + 20];
        int fd = -1, r = make_sealed(use->name, value, n, &fd);

        if (r < 0)
                return r;
        s->secret_fds[s->secrets_n++] = fd;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%zu", 2 + s->secrets_n);
        return set_file_name(s, use->name, path);
}

static int put_in_mount(struct start *s, const Wb__SecretUse *use, const uint8_t *value, size_t n)
{
        char path[sizeof(SECRET_MOUNT_DIRECTORY) + WB_SECRET_NAME_MAX + 1];

        for (size_t i = 0; i < s->files_n; i++)
                if (strcmp(s->files[i].name, use->name) == 0)
                        return refuse(s, "bad_request", "%s is to be mounted twice", use->name);
        s->files[s->files_n++] = (struct secret_file){.name = use->name, .value = value, .value_n = n};
        (void)snprintf(path, sizeof(path), "%s/%s", SECRET_MOUNT_DIRECTORY, use->name);
        return set_file_name(s, use->name, path);
}

static int take_secret(struct start *s, const Wb__SecretUse *use)
{
        const uint8_t *value;
        size_t n;
        int r = secret_get(s->table->agent->secrets, use->name, clock_monotonic_ns(), &value, &n);

        if (r == SECRET_E_UNKNOWN)
                return refuse(s, "secret_unknown", "%s", use->name);
        if (r == SECRET_E_EXPIRED)
                return refuse(s, "secret_expired", "%s", use->name);
        if (strchr(use->name, '/') || use->name[0] == '.')
                return refuse(s, "bad_request", "%s: not a name for a file", use->name);
        if (use->form == WB__SECRET_USE__FORM__FD)
                return hand_down(s, use, value, n);
        if (use->form == WB__SECRET_USE__FORM__MOUNT)
                return put_in_mount(s, use, value, n);
        if (n && memchr(value, 0, n))
                return refuse(s, "bad_request", "%s holds a NUL byte and cannot be a variable", use->name);
        return environment_set(&s->env, use->name, n ? (const char *)value : "", n);
}

/* Where the mount of the exec's own namespace goes; others see an empty directory. */
static int make_mount_point(void)
{
        const char *const paths[] = {"/run/wbagent", SECRET_MOUNT_DIRECTORY};

        for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
                if (mkdir(paths[i], 0755) == 0)
                        (void)chmod(paths[i], 0755); /* whatever the umask */
                else if (errno != EEXIST)
                        return -errno;
        return 0;
}

static int make_mount(struct start *s)
{
        int r = make_mount_point();

        if (r == 0)
                r = secret_mount_new(s->files, s->files_n, s->who.uid, s->who.gid, &s->secrets_fd);
        return r < 0 ? refuse(s, "internal", "mount of secrets: %s%s", strerror(-r),
                               r == -ENOSYS ? " (it needs Linux 5.2)" : "")
                     : 0;
}

static int take_secrets(struct start *s)
{
        int r = 0;

        if (s->m->n_secrets > WB_SECRETS_MAX)
                return refuse(s, "bad_request", "more than %u secrets", WB_SECRETS_MAX);
        for (size_t i = 0; r == 0 && i < s->m->n_secrets; i++)
                r = take_secret(s, s->m->secrets[i]);
        return r == 0 && s->files_n ? make_mount(s) : r;
}

static int finish_env(struct start *s)
{
        return environment_finish(&s->env);
}

/* ---- limits */

static int take_rlimits(struct start *s)
{
        const struct rlimit *nofile = &s->table->agent->inherited_nofile;

        /* What the agent raised for itself goes back to what it was given. */
        if (nofile->rlim_max)
                s->rlimits[s->rlimits_n++] = (struct spawn_rlimit){RLIMIT_NOFILE, *nofile};
        if (s->m->n_rlimits > RLIM_NLIMITS)
                return refuse(s, "bad_request", "more than %d rlimits", (int)RLIM_NLIMITS);
        for (size_t i = 0; i < s->m->n_rlimits; i++) {
                const Wb__Rlimit *asked = s->m->rlimits[i];
                int number = rlimit_number(asked->name);

                if (number < 0)
                        return refuse(s, "limit_unavailable", "rlimit %.400s: there is none of this name", asked->name);
                s->rlimits[s->rlimits_n++] = (struct spawn_rlimit){number, {asked->soft, asked->hard}};
        }
        return 0;
}

static int take_caps(struct start *s)
{
        s->spec.caps_set = s->m->caps_set;
        for (size_t i = 0; i < s->m->n_caps; i++) {
                int number = capability_number(s->m->caps[i]);

                if (number < 0 || !(s->table->caps >> number & 1))
                        return refuse(s, "limit_unavailable", "capability %.400s: %s", s->m->caps[i],
                                number < 0 ? "there is none of this name" : "the agent has not got it");
                s->spec.caps |= UINT64_C(1) << number;
        }
        return 0;
}

/* What the command will hold: a root all, unless it is bounded; another user nothing, unless it is given. */
static uint64_t held_caps(const struct start *s)
{
        if (s->m->caps_set)
                return s->spec.caps;
        return s->who.uid == 0 ? s->table->caps : 0;
}

static int take_custom_filter(struct start *s)
{
        ProtobufCBinaryData program = s->m->seccomp_program;

        if (program.len == 0 || program.len % sizeof(*s->custom_filter))
                return refuse(s, "bad_request", "seccomp: this is no program");
        s->custom_filter = malloc(program.len); /* aligned, as the message is not */
        if (!s->custom_filter)
                return -ENOMEM;
        memcpy(s->custom_filter, program.data, program.len);
        s->spec.filter = s->custom_filter;
        s->spec.filter_n = program.len / sizeof(*s->custom_filter);
        return 0;
}

static int take_seccomp(struct start *s)
{
        uint64_t held = held_caps(s);

        s->spec.filter_asked = s->m->seccomp != WB__SECCOMP_PROFILE__SECCOMP_UNASKED;
        if (s->m->seccomp == WB__SECCOMP_PROFILE__SECCOMP_CUSTOM)
                return take_custom_filter(s);
        if (s->m->seccomp == WB__SECCOMP_PROFILE__SECCOMP_OFF || !seccomp_profile_refuses(held))
                return 0;
        s->profile = malloc(sizeof(*s->profile));
        if (!s->profile)
                return -ENOMEM;
        seccomp_profile_build(held, s->profile);
        s->spec.filter = s->profile->at;
        s->spec.filter_n = s->profile->n;
        return 0;
}

static int take_cgroup(struct start *s)
{
        const Wb__ExecLimits *asked = s->m->limits;
        struct cgroup_limits limits = {0};
        struct cgroup_tree *tree = s->table->cgroups;
        const char *which = NULL;
        int r;

        if (asked)
                limits = (struct cgroup_limits){asked->memory_bytes, asked->pids, asked->cpu_percent, asked->io_bps};
        which = cgroup_missing(tree, &limits);
        if (which)
                return refuse(s, "limit_unavailable", "%s: this guest has no such cgroup v2 controller for it", which);
        if (!tree)
                return 0;
        r = cgroup_make(tree, s->exec->id, &limits, &s->cgroup_fd, &which);
        if (r == CGROUP_E_REFUSED)
                return refuse(s, "limit_unavailable", "%s: the kernel refuses this value", which);
        if (r < 0)
                return refuse(s, "internal", "cgroup: %s", strerror(-r));
        s->exec->has_cgroup = true;
        s->exec->memory_limit_bytes = limits.memory_bytes;
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
        return io_set_nonblock(*ours);
}

static int make_terminal(struct start *s)
{
        const Wb__TerminalSize *size = s->m->terminal;
        int r = pty_open(size->rows, size->columns, s->who.uid, &s->out[EXEC_STDOUT], &s->child[0]);

        if (r < 0)
                return refuse(s, "internal", "no terminal: %s", strerror(-r));
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
                return refuse(s, "internal", "%d execs run already", EXEC_LIVE_MAX);
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
        int (*const steps[])(struct start *) = {take_argv, take_user, take_cwd, add_defaults, take_env, take_secrets,
                finish_env, take_rlimits, take_caps, take_seccomp, make_exec, take_cgroup, make_streams, make_report};

        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
                int r = steps[i](s);

                if (r != 0)
                        return r;
        }
        return 0;
}

static int start_process(struct start *s)
{
        struct exec *x = s->exec;
        struct spawn *spec = &s->spec;
        int r;

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
        r = exec_open_streams(x, s->out, s->in);
        if (r < 0)
                return r;
        s->out[EXEC_STDOUT] = s->out[EXEC_STDERR] = s->in = -1;
        return spawn(spec, s->report < 0 ? &x->pid : &x->keeper, &x->status_fd);
}

/* The command is on its way; what becomes of it is told to whoever looks. */
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

void exec_open_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m)
{
        struct start s;
        int r;

        start_init(&s, t, m);
        r = prepare(&s);
        if (r == 0)
                r = start_process(&s);
        if (r == 0) {
                exec_begin(s.exec);
                r = hand_over(&s, c);
                if (r < 0) {
                        exec_end_all(s.exec, EXEC_BY_CLIENT_GONE); /* it is reaped like any other */
                        s.exec = NULL;
                }
        }
        if (r != 0) {
                if (s.exec) {
                        exec_sweep(s.exec);
                        exec_free(s.exec);
                }
                (void)control_send_error(c, r < 0 ? "internal" : s.reason, r < 0 ? strerror(-r) : s.detail);
                control_finish(c);
        }
        start_done(&s);
}
