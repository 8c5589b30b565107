/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files of an exec share:
 *     exec.c         the table: find, list, kill, attach; the keeping of ended ones
 *     exec_gather.c  a request that comes in several messages
 *     exec_start.c   from the request to a process, or to the reason why not
 *     exec_confine.c its part for secrets and limits
 *     exec_limit.c   other limits, while it runs
 *     exec_life.c    from the process to its result: states, timers, signals
 *     exec_viewer.c  a conversation that looks at an exec: output, credit, input
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/resource.h>

#include <event2/event_struct.h>

#include "guest/agent.h"
#include "guest/cgroup.h"
#include "guest/control.h"
#include "guest/exec.h"
#include "guest/spawn.h"
#include "guest/stream.h"
#include "guest/texts.h"

#define EXEC_ID_BYTES           24
#define EXEC_LIVE_MAX           1024 /* running, or lingering: as many as the smallest pid_max leaves room for */
#define EXEC_GATHERED_MAX_BYTES (16u * 1024u * 1024u)
#define EXEC_CMD_BYTES          4096 /* of argv, as far as it is shown */
#define EXEC_DRAIN_MS           2000 /* cases/README-exec.md: "2 s at most" */

enum exec_state {
        EXEC_STARTING, /* forked; execve(2) has not been heard of */
        EXEC_RUNNING,
        EXEC_DRAINING, /* the leader has ended; what it wrote is being read */
        EXEC_ENDED,    /* the result stands */
};

/* Who ended it, where it did not end by itself. */
enum exec_cause {
        EXEC_BY_ITSELF,
        EXEC_BY_TIMEOUT,
        EXEC_BY_KILL,
        EXEC_BY_CLIENT_GONE,
};

enum {
        EXEC_STDOUT,
        EXEC_STDERR,
        EXEC_STREAMS,
};

struct viewer;

struct exec {
        struct exec_table *table;
        TAILQ_ENTRY(exec) entry;
        char id[EXEC_ID_BYTES];
        enum exec_state state;
        enum exec_cause cause;
        bool detached;
        bool terminal;
        bool has_cgroup;
        int watch;      /* of the cgroup, while it lingers; -1 */
        int secrets_fd; /* the mount of its secrets, as long as processes may be there; -1 */
        pid_t pid;      /* the command's; 0 while a keeper has not told it */
        pid_t keeper;   /* where there are no cgroups; 0: none, or nobody is left of the exec */
        int report_fd;  /* the keeper's; -1 */
        struct event report;
        uint64_t timeout_ms;
        struct cgroup_limits limits; /* as asked for */

        char *cmd; /* argv, a NUL behind each, as far as it is shown; then another NUL */
        size_t cmd_bytes;

        int status_fd; /* of spawn_status_pipe(); -1 once it has told */
        struct event status;
        struct spawn_failure failure;
        bool failed;
        char *cwd; /* as asked for, or the user's home: for the message */

        struct event timer;  /* the timeout, then the drain's limit */
        struct event ending; /* pending: a stream has ended, and it is not told yet */
        struct output output[EXEC_STREAMS];
        struct input input;
        uint64_t pending_signals; /* bit n: signal n + 1, to be sent once it runs */

        LIST_HEAD(, viewer) viewers;
        struct event patience;

        uint64_t started_ns;
        uint64_t ended_ns;
        int wait_status;
        struct rusage rusage;
        struct cgroup_usage usage;
};

TAILQ_HEAD(exec_list, exec);

struct exec_table {
        struct agent *agent;
        struct cgroup_tree *cgroups; /* NULL: none */
        uint64_t caps;               /* of the agent's bounding set, which never grows */
        int inotify_fd;
        struct event emptied;   /* a cgroup */
        struct exec_list execs; /* oldest first; the ended ones in the order of their end */
        unsigned live;
        unsigned ended;
        uint32_t counter;
        size_t gathered_bytes; /* of starts that have not come whole yet */
};

/* exec.c */
struct exec *exec_find(struct exec_table *t, const char *id);
struct exec *exec_find_or_refuse(struct exec_table *t, struct control *c, const char *id); /* NULL: c is finished */
int exec_new(struct exec_table *t, struct exec **ret);
void exec_free(struct exec *x);
bool exec_is_held(const struct exec *x); /* processes of it may be there */
bool exec_is_lingering(const struct exec *x);
void exec_keep(struct exec *x); /* x has ended: pushes out those that ended long ago */

/* exec_limit.c */
#define EXEC_NO_CONTROLLER "%s: this guest has no such cgroup v2 controller for it"
#define EXEC_VALUE_REFUSED "%s: the kernel refuses this value"
void exec_limits_to_message(const struct cgroup_limits *limits, Wb__ExecLimits *ret);

/* exec_gather.c: starts it when the rest has come. */
void exec_gather(struct exec_table *t, struct control *c, const Wb__ExecStart *m);

/* exec_start.c: m but for its texts, which are these; all stay the caller's. The conversation is the exec's. */
void exec_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m, const struct texts *argv,
        const struct texts *env);

/* exec_life.c. Each may free x when it says so. */
/* The agent's ends of its streams, -1 where there is none; the exec's from here on. 0 or -ENOMEM (then they are the
 * caller's still). */
int exec_open_streams(struct exec *x, const int out_fds[EXEC_STREAMS], int in_fd);
void exec_begin(struct exec *x);                          /* the process is about to be there */
void exec_signal(struct exec *x, int signal);             /* to the command's process group */
void exec_end_all(struct exec *x, enum exec_cause cause); /* SIGKILL to the whole tree */
void exec_leader_ended(struct exec *x, int wait_status, const struct rusage *usage); /* may free x */
void exec_keeper_ended(struct exec *x, int wait_status, const struct rusage *usage); /* may free x */
void exec_sweep(struct exec *x); /* removes the cgroup if it is empty, else watches it */
void exec_fill_result(const struct exec *x, Wb__ExecResult *result, char *detail, size_t detail_room);
int exec_status(const struct exec *x);
const char *exec_reason(const struct exec *x);

/* exec_viewer.c */
struct cursor {
        uint64_t offset; /* of the next byte to send */
        uint64_t credit_bytes;
        bool eof_sent;
};

struct viewer {
        LIST_ENTRY(viewer) entry;
        struct exec *exec;
        struct control *control;
        bool owner;   /* opened it, not detached: the exec waits for it, and ends with it */
        bool opener;  /* its input is the command's */
        bool overrun; /* not waited for any more until it moves again */
        uint64_t moved_ns;
        struct cursor cursor[EXEC_STREAMS];
};

int viewer_new(struct exec *x, struct control *c, uint64_t window_bytes, struct viewer **ret);
void viewers_say_started(struct exec *x);
void viewers_refuse(struct exec *x, const char *reason, const char *detail); /* an Error, and no viewer is left */
void viewers_pump(struct exec *x); /* sends what there is; allows more to be read */
void viewer_say_started(struct viewer *v);
void viewer_pump(struct viewer *v);
void viewers_give_input_credit(struct exec *x);
