/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/client/exec_client.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/exec_result.h"
#include "tools/wbctl/outlet.h"
#include "tools/wbctl/terminal.h"

#define CLOSING_MS                                                                                                     \
        100 /* for the agent to close the conversation after the result: our caller may look at the guest next */
#define START_MS        30000 /* for an agent to say that the command runs, or why it does not */
#define START_SIGNAL_MS 1000  /* the same, once we were told to end: what does not answer cannot pass a signal on */
#define EXIT_SIGPIPE    (128 + SIGPIPE) /* our reader has gone: what a local command would end with */

static const int passed_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
#define PASSED_SIGNALS (sizeof(passed_signals) / sizeof(*passed_signals))

struct session;

struct side {
        struct session *session;
        struct outlet *outlet;
        Wb__Stream stream;
        uint64_t offset; /* of the next byte that we expect */
};

struct session {
        const struct session_options *options;
        struct event_base *base;
        struct exec_client *client;
        struct terminal terminal;
        struct side sides[2]; /* stdout, stderr */
        struct event *stdin_readable;
        bool stdin_is_file; /* always readable, and nothing for a loop to wait on */
        bool stdin_ended;
        struct event *signals[PASSED_SIGNALS];
        struct event *resized;
        bool ended;  /* the exec has; what is left is to be written out */
        bool closed; /* the agent has let go of it, or was waited for long enough */
        struct event *closing;
        struct event *starting; /* pending until the agent has answered */
        int start_signal;       /* came meanwhile; 0: none */
        int status;
};

bool session_prepare(void)
{
        bool has_stdin = fcntl(STDIN_FILENO, F_GETFD) >= 0;
        struct stat st;

        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0)
                        (void)open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY); /* the lowest free one: fd */
        if (!has_stdin || fstat(STDIN_FILENO, &st) < 0)
                return false;
        return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

/* ---- input */

/* One read: what is there now, as far as the command takes it. False when no more is to be read for now. */
static bool pass_input(struct session *s)
{
        uint8_t bytes[WB_CHUNK_MAX_BYTES];
        size_t room = exec_client_input_room(s->client);
        ssize_t n;

        if (!room || s->stdin_ended)
                return false;
        n = read(STDIN_FILENO, bytes, room);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return false;
        if (n <= 0) {
                s->stdin_ended = true;
                (void)exec_client_input_eof(s->client);
                return false;
        }
        return exec_client_input(s->client, bytes, (size_t)n) == 0;
}

/* The loop waits for stdin only while the command takes input: it would else be told again and again. */
static void wait_for_input(struct session *s)
{
        bool wanted = !s->ended && !s->stdin_ended && exec_client_input_room(s->client) > 0;

        if (!s->stdin_readable)
                return;
        if (wanted && !s->stdin_is_file)
                (void)event_add(s->stdin_readable, NULL);
        else if (wanted)
                event_active(s->stdin_readable, EV_READ, 0);
        else
                (void)event_del(s->stdin_readable);
}

static void on_stdin(evutil_socket_t fd, short events, void *userdata)
{
        struct session *s = userdata;

        (void)fd;
        (void)events;
        (void)pass_input(s);
        wait_for_input(s);
}

static void on_input_room(void *userdata)
{
        wait_for_input(userdata);
}

static int open_input(struct session *s)
{
        struct stat st;

        if (fstat(STDIN_FILENO, &st) < 0)
                return 0;
        s->stdin_is_file = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode);
        s->stdin_readable = event_new(s->base, s->stdin_is_file ? -1 : STDIN_FILENO, EV_READ, on_stdin, s);
        return s->stdin_readable ? 0 : -ENOMEM;
}

/* ---- output */

static void leave_if_done(struct session *s)
{
        if (s->ended && s->closed && outlet_is_empty(s->sides[0].outlet) && outlet_is_empty(s->sides[1].outlet))
                (void)event_base_loopbreak(s->base);
}

static void on_written(void *userdata, size_t n)
{
        struct side *side = userdata;

        if (!side->session->ended)
                exec_client_consumed(side->session->client, side->stream, n);
        leave_if_done(side->session);
}

static void on_broken(void *userdata, int error)
{
        struct session *s = ((struct side *)userdata)->session;

        if (error != -EPIPE)
                fprintf(stderr, "wbctl: cannot write output: %s\n", strerror(-error));
        if (!s->ended || error != -EPIPE)
                s->status = error == -EPIPE ? EXIT_SIGPIPE : EXIT_FAILED;
        s->ended = true;
        (void)event_base_loopbreak(s->base);
}

static const struct outlet_handler outlet_handler = {.written = on_written, .broken = on_broken};

/* What the guest's ring did not keep: whoever puts a stream together from pieces must know of the hole. */
static void tell_missed(const struct side *side, uint64_t offset)
{
        fprintf(stderr, "wbctl: missed: bytes %" PRIu64 " to %" PRIu64 " of %s are not kept any more\n", side->offset,
                offset - 1, side->stream == WB__STREAM__STDERR ? "stderr" : "stdout");
}

static void on_output(void *userdata, Wb__Stream stream, uint64_t offset, const uint8_t *data, size_t n, bool eof)
{
        struct session *s = userdata;
        struct side *side = &s->sides[stream == WB__STREAM__STDERR];

        (void)eof;
        if (offset > side->offset)
                tell_missed(side, offset);
        side->offset = offset + n;
        if (outlet_put(side->outlet, data, n) < 0)
                on_broken(&s->sides[0], -ENOMEM);
}

static int open_output(struct session *s)
{
        static const Wb__Stream streams[2] = {WB__STREAM__STDOUT, WB__STREAM__STDERR};
        int r = 0;

        for (int i = 0; r == 0 && i < 2; i++) {
                s->sides[i] = (struct side){.session = s, .stream = streams[i]};
                r = outlet_new(
                        s->base, i ? STDERR_FILENO : STDOUT_FILENO, &outlet_handler, &s->sides[i], &s->sides[i].outlet);
        }
        return r;
}

/* ---- signals and the terminal's size */

static void arm_starting(struct session *s, uint64_t ms)
{
        const struct timeval limit = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};

        (void)event_add(s->starting, &limit);
}

static void on_signal(evutil_socket_t number, short events, void *userdata)
{
        struct session *s = userdata;

        (void)events;
        if (!s->ended) {
                (void)exec_client_signal(s->client, (unsigned)number);
                if (event_pending(s->starting, EV_TIMEOUT, NULL) && !s->start_signal) {
                        s->start_signal = (int)number;
                        arm_starting(s, START_SIGNAL_MS);
                }
                return;
        }
        s->status = 128 + (int)number; /* only our own reader is waited for */
        (void)event_base_loopbreak(s->base);
}

static void on_resized(evutil_socket_t number, short events, void *userdata)
{
        struct session *s = userdata;
        unsigned rows, columns;

        (void)number;
        (void)events;
        if (!s->ended && terminal_size(&s->terminal, &rows, &columns))
                (void)exec_client_resize(s->client, rows, columns);
}

static int watch_signals(struct session *s)
{
        for (size_t i = 0; i < PASSED_SIGNALS; i++) {
                s->signals[i] = evsignal_new(s->base, passed_signals[i], on_signal, s);
                if (!s->signals[i] || event_add(s->signals[i], NULL) < 0)
                        return -ENOMEM;
        }
        return 0;
}

/* Watched before the size is read, so that no change is missed. */
static int watch_size(struct session *s)
{
        s->resized = evsignal_new(s->base, SIGWINCH, on_resized, s);
        return s->resized && event_add(s->resized, NULL) == 0 ? 0 : -ENOMEM;
}

/* ---- start and end */

static void on_started(void *userdata, const char *id, pid_t pid)
{
        struct session *s = userdata;

        (void)pid;
        (void)event_del(s->starting);
        if (s->options->detach) {
                s->status = printf("%s\n", id) < 0 || fflush(stdout) ? EXIT_FAILED : 0;
                s->ended = true;
                exec_client_free(STEAL(s->client)); /* what comes of it is not ours any more */
                (void)event_base_loopbreak(s->base);
                return;
        }
        wait_for_input(s);
}

/* Said where nothing was started, where the connection broke, and for an OOM: what else a status alone would not tell.
 */
static void tell(struct session *s, const struct exec_outcome *outcome)
{
        if (outcome->result && strcmp(outcome->reason, "oom") != 0)
                return;
        terminal_restore(&s->terminal);
        fprintf(stderr, "wbctl: %s: %s\n", outcome->reason, outcome->detail);
}

static void on_closed(void *userdata)
{
        struct session *s = userdata;

        s->closed = true;
        leave_if_done(s);
}

static void on_closing(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        on_closed(userdata);
}

static void on_ended(void *userdata, const struct exec_outcome *outcome)
{
        const struct timeval closing = {.tv_usec = CLOSING_MS * 1000};
        struct session *s = userdata;

        (void)event_del(s->starting);
        s->ended = true;
        s->status = outcome->exit_status;
        tell(s, outcome);
        if (s->options->result_path && exec_result_write(s->options->result_path, outcome) < 0)
                s->status = EXIT_FAILED;
        wait_for_input(s);
        s->closed = strcmp(outcome->reason, "connection_lost") == 0 || event_add(s->closing, &closing) < 0;
        leave_if_done(s);
}

/* Else a guest that takes a connection and says nothing would hold us, and no signal but SIGKILL would end us. */
static void on_starting(evutil_socket_t fd, short events, void *userdata)
{
        struct session *s = userdata;
        const struct exec_outcome outcome = {
                .reason = "connection_lost",
                .detail = "the agent did not answer",
                .exit_status = s->start_signal ? 128 + s->start_signal : EXIT_FAILED,
                .error = -ETIMEDOUT,
        };

        (void)fd;
        (void)events;
        on_ended(s, &outcome);
}

static const struct exec_client_handler client_handler = {
        .started = on_started,
        .output = on_output,
        .input_room = on_input_room,
        .ended = on_ended,
        .closed = on_closed,
};

static void session_done(struct session *s)
{
        terminal_restore(&s->terminal);
        exec_client_free(s->client);
        for (size_t i = 0; i < PASSED_SIGNALS; i++)
                if (s->signals[i])
                        event_free(s->signals[i]);
        if (s->resized)
                event_free(s->resized);
        if (s->stdin_readable)
                event_free(s->stdin_readable);
        outlet_free(s->sides[0].outlet);
        outlet_free(s->sides[1].outlet);
        if (s->closing)
                event_free(s->closing);
        if (s->starting)
                event_free(s->starting);
        if (s->base)
                event_base_free(s->base);
}

static int session_init(struct session *s, const struct session_options *options)
{
        *s = (struct session){.options = options, .status = EXIT_FAILED, .terminal = {.fd = -1}};
        (void)signal(SIGPIPE, SIG_IGN);
        s->base = event_base_new();
        s->closing = s->base ? evtimer_new(s->base, on_closing, s) : NULL;
        s->starting = s->closing ? evtimer_new(s->base, on_starting, s) : NULL;
        return s->starting ? open_output(s) : -ENOMEM;
}

static int refuse_too_long(const struct session_options *options)
{
        const struct exec_outcome outcome = {
                .reason = "args_too_long",
                .detail = "arguments and environment are larger than an exec may be",
                .exit_status = exec_client_refusal_status("args_too_long"),
        };

        fprintf(stderr, "wbctl: %s: %s\n", outcome.reason, outcome.detail);
        if (options->result_path)
                (void)exec_result_write(options->result_path, &outcome);
        return outcome.exit_status;
}

/* Runs until there is a status. r is how far the start has got. */
static int finish(struct session *s, int r)
{
        if (r == 0 && event_base_dispatch(s->base) < 0)
                r = -EIO;
        session_done(s);
        if (r < 0) {
                fprintf(stderr, "wbctl: %s\n", strerror(-r));
                return EXIT_FAILED;
        }
        return s->status;
}

/* The command's terminal is of the kind and size of ours. */
static int ask_for_terminal(struct session *s, Wb__ExecStart *start, Wb__TerminalSize *size)
{
        int r = watch_size(s);

        if (r < 0)
                return r;
        terminal_find(&s->terminal);
        (void)terminal_size(&s->terminal, &size->rows, &size->columns);
        start->terminal = size;
        return terminal_make_raw(&s->terminal);
}

int session_exec(int fd, Wb__ExecStart *start, const struct session_options *options)
{
        Wb__TerminalSize size = WB__TERMINAL_SIZE__INIT;
        struct session s;
        int r = session_init(&s, options);

        start->detach = options->detach;
        if (r == 0 && !options->detach)
                r = watch_signals(&s);
        if (r == 0 && !options->detach && !start->stdin_closed)
                r = open_input(&s);
        if (r == 0 && options->terminal)
                r = ask_for_terminal(&s, start, &size);
        if (r == 0)
                r = exec_client_start(s.base, steal_fd(&fd), start, &client_handler, &s, &s.client);
        close_fd(fd);
        if (r == 0)
                arm_starting(&s, START_MS);
        if (r == EXEC_CLIENT_E_TOO_LONG) {
                session_done(&s);
                return refuse_too_long(options);
        }
        return finish(&s, r);
}

int session_attach(int fd, Wb__ExecAttach *attach, const struct session_options *options)
{
        struct session s;
        int r = session_init(&s, options);

        s.sides[0].offset = attach->stdout_offset;
        s.sides[1].offset = attach->stderr_offset;
        if (r == 0)
                r = exec_client_attach(s.base, steal_fd(&fd), attach, &client_handler, &s, &s.client);
        close_fd(fd);
        if (r == 0)
                arm_starting(&s, options->answer_ms);
        return finish(&s, r);
}
