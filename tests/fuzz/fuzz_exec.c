/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Execs under any conversation: the input is a list of steps of hosts (starts in one message or several, input, credit,
 * signals, attaching, killing, raw frames, going away) and of commands (execve(2) or its failure, output, reading,
 * ends, what stays behind). The agent's own code is real from the frame to the pipe; processes are not (exec_world.h).
 * Each host that keeps to the protocol checks what it is told: streams without gap, change or more than its credit, one
 * result that agrees with them, nothing behind it. In the end nothing is left.
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/control_pool.h"
#include "guest/resume.h"
#include "guest/secret.h"
#include "guest/sentinel.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "tests/fuzz/exec_world.h"
#include "tests/fuzz/fuzz.h"

#define HOSTS      4
#define STEPS_MAX  400
#define FDS_LOOKED 128

struct stream_seen {
        uint64_t next, credit;
        bool eof;
};

struct host {
        int fd; /* -1: not connected */
        struct frame_reader reader;
        bool opened;    /* the first message was sent */
        bool gathering; /* and it goes on in ExecStartMore */
        bool wild;      /* it broke the rules: of what it is told only the form is checked */
        bool is_owner;  /* opened an exec, and misses nothing */
        bool terminal;  /* bytes are changed on their way */
        bool started, over;
        struct stream_seen out[EXEC_STREAMS];
        uint64_t input_offset, input_credit;
        bool input_ended;
        pid_t pid;
};

static struct agent agent;
static struct control_pool pool;
static struct host hosts[HOSTS];

/* ---- the input */

struct steps {
        const uint8_t *p;
        size_t n;
};

static uint8_t take(struct steps *s)
{
        if (!s->n)
                return 0;
        s->n--;
        return *s->p++;
}

static uint64_t take_window(struct steps *s)
{
        static const uint64_t windows[] = {0, 100, 70000, 1 << 20};

        return windows[take(s) % 4];
}

/* ---- what a host is told */

static void see_chunk(struct host *h, const Wb__Chunk *chunk)
{
        int stream = chunk->stream == WB__STREAM__STDERR ? EXEC_STDERR : EXEC_STDOUT;
        struct stream_seen *seen = &h->out[stream];

        MUST(h->started && chunk->stream != WB__STREAM__STDIN && !seen->eof);
        MUST(chunk->data.len || chunk->eof);
        MUST(h->is_owner ? chunk->offset == seen->next : chunk->offset >= seen->next);
        MUST(chunk->data.len <= seen->credit);
        for (size_t i = 0; i < chunk->data.len && !h->terminal; i++)
                MUST(chunk->data.data[i] == world_byte(stream + 1, chunk->offset + i));
        seen->next = chunk->offset + chunk->data.len;
        seen->credit -= chunk->data.len;
        seen->eof = chunk->eof;
}

static void see_result(struct host *h, const Wb__ExecResult *result)
{
        MUST(h->started && h->out[EXEC_STDOUT].eof && h->out[EXEC_STDERR].eof);
        MUST(result->stdout_bytes == h->out[EXEC_STDOUT].next && result->stderr_bytes == h->out[EXEC_STDERR].next);
        MUST(result->exit_code >= 0 && result->exit_code <= 255);
        MUST(!result->signal || strcmp(result->reason, "exited") != 0);
        h->over = true;
}

static void see_started(struct host *h, const Wb__ExecStarted *started)
{
        const struct command *c = world_command_of(started->pid);

        MUST(!h->started);
        h->started = true;
        h->input_credit = started->input_window_bytes;
        h->pid = started->pid;
        if (!h->is_owner)
                h->terminal = true; /* whose exec it is, and how it runs, is not known here */
        MUST(!c || !h->is_owner || c->terminal == h->terminal);
}

static void see(struct host *h, const Wb__FromAgent *m)
{
        if (h->wild)
                return;
        MUST(!h->over);
        switch ((int)m->body_case) {
        case WB__FROM_AGENT__BODY_EXEC_STARTED: see_started(h, m->exec_started); break;
        case WB__FROM_AGENT__BODY_OUTPUT: see_chunk(h, m->output); break;
        case WB__FROM_AGENT__BODY_INPUT_CREDIT: h->input_credit += m->input_credit->bytes; break;
        case WB__FROM_AGENT__BODY_EXEC_RESULT: see_result(h, m->exec_result); break;
        case WB__FROM_AGENT__BODY_ERROR: MUST(!h->started && *m->error->reason); /* fall through */
        case WB__FROM_AGENT__BODY_OK:
        case WB__FROM_AGENT__BODY_EXEC_LIMITS:
        case WB__FROM_AGENT__BODY_EXEC_ENTRIES: h->over = true; break;
        default: MUST(!"a message that no exec sends");
        }
}

static void host_reset(struct host *h)
{
        frame_reader_done(&h->reader);
        close_fd(h->fd);
        *h = (struct host){.fd = -1};
}

/* At most n bytes. */
static void host_reads(struct host *h, size_t n)
{
        uint8_t bytes[16384];
        ssize_t got = h->fd < 0 ? -1 : recv(h->fd, bytes, min_size(n, sizeof(bytes)), MSG_DONTWAIT);
        const uint8_t *p = bytes, *payload;
        size_t left = got > 0 ? (size_t)got : 0, payload_n;

        while (left && frame_read(&h->reader, &p, &left, &payload, &payload_n) == 0) {
                Wb__FromAgent *m;

                MUST(codec_unpack_from_agent(payload, payload_n, &m) == 0);
                see(h, m);
                codec_free_from_agent(m);
        }
}

/* ---- what a host says */

static void turn(void)
{
        for (int i = 0; i < 3; i++)
                (void)event_base_loop(agent.base, EVLOOP_NONBLOCK);
}

static bool host_dials(struct host *h)
{
        int ends[2];

        if (h->fd >= 0)
                return true;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
                return false;
        MUST(control_new(&pool, ends[0]) == 0);
        h->fd = ends[1];
        return true;
}

static void say_bytes(struct host *h, const uint8_t *bytes, size_t n)
{
        size_t put = 0;

        for (int i = 0; host_dials(h) && put < n && i < 100; i++) {
                ssize_t r = send(h->fd, bytes + put, n - put, MSG_NOSIGNAL);

                if (r < 0 && errno != EAGAIN)
                        return;
                put += r > 0 ? (size_t)r : 0;
                turn();
        }
        h->wild |= put < n;
}

/* opening: what is first of a conversation, and nothing later. */
static void say(struct host *h, const Wb__ToAgent *m, bool opening)
{
        uint8_t *frame;
        size_t n;

        if (codec_pack_to_agent(m, &frame, &n) < 0)
                return;
        h->wild |= opening == h->opened || h->gathering != (m->body_case == WB__TO_AGENT__BODY_EXEC_START_MORE);
        h->opened = true;
        say_bytes(h, frame, n);
        free(frame);
}

#define SAY(h, field, FIELD, value, opening)                                                                           \
        say(h,                                                                                                         \
                &(Wb__ToAgent){PROTOBUF_C_MESSAGE_INIT(&wb__to_agent__descriptor), WB__TO_AGENT__BODY_##FIELD,         \
                        {.field = (value)}},                                                                           \
                opening)

enum {
        START_DETACH = 1,
        START_NO_STDIN = 2,
        START_TERMINAL = 4,
        START_MORE = 8,
        START_TIMEOUT = 16,
        START_LIMITS = 32,
        START_RLIMIT = 64,
        START_CAPS = 128,
};

static void host_starts(struct host *h, struct steps *s)
{
        static char *const users[] = {"", "65534", "no such user", "12:34,56"};
        static uint8_t long_text[3000];
        uint8_t flags = take(s), kind = take(s);
        ProtobufCBinaryData argv[2] = {{1 + kind % 8, (uint8_t *)"commands"}, {kind * 11u, long_text}};
        ProtobufCBinaryData env[1] = {{kind % 4 ? 3 : 1, (uint8_t *)"A=1"}};
        Wb__TerminalSize size = WB__TERMINAL_SIZE__INIT;
        Wb__ExecLimits limits = WB__EXEC_LIMITS__INIT;
        Wb__Rlimit rlimit = WB__RLIMIT__INIT, *rlimits = &rlimit;
        Wb__ExecStart start = WB__EXEC_START__INIT;

        memset(long_text, 'x', sizeof(long_text));
        start.argv = argv;
        start.n_argv = 2;
        start.env = env;
        start.n_env = kind / 4 % 2;
        start.user = users[kind / 8 % 4];
        start.detach = flags & START_DETACH;
        start.stdin_closed = flags & START_NO_STDIN;
        start.terminal = flags & START_TERMINAL ? &size : NULL;
        start.more = flags & START_MORE;
        start.timeout_ms = flags & START_TIMEOUT ? 100000 : 0;
        limits.memory_bytes = kind % 3;
        limits.io_bps = kind % 16 == 15;
        start.limits = flags & START_LIMITS ? &limits : NULL;
        rlimit.name = (char *)(uintptr_t)(kind % 2 ? "stack" : "none such");
        rlimit.soft = rlimit.hard = UINT64_C(1) << kind % 64;
        start.rlimits = &rlimits;
        start.n_rlimits = flags & START_RLIMIT ? 1 : 0;
        start.caps_set = flags & START_CAPS;
        start.output_window_bytes = take_window(s);
        h->out[EXEC_STDOUT].credit = h->out[EXEC_STDERR].credit = start.output_window_bytes;
        h->is_owner = !start.detach;
        h->terminal = start.terminal != NULL || start.detach;
        SAY(h, exec_start, EXEC_START, &start, true);
        h->gathering = start.more;
}

static void host_goes_on(struct host *h, struct steps *s)
{
        static uint8_t text[100000];
        uint8_t n = take(s) % 8;
        ProtobufCBinaryData argv[8];
        Wb__ExecStartMore more = WB__EXEC_START_MORE__INIT;

        memset(text, 'y', sizeof(text));
        for (size_t i = 0; i < n; i++)
                argv[i] = (ProtobufCBinaryData){sizeof(text) >> (4 * (take(s) % 4)), text};
        more.argv = argv;
        more.n_argv = n;
        more.more = take(s) & 1;
        SAY(h, exec_start_more, EXEC_START_MORE, &more, false);
        h->gathering = more.more;
}

static void host_inputs(struct host *h, struct steps *s)
{
        static uint8_t bytes[65536];
        Wb__Chunk chunk = WB__CHUNK__INIT;
        uint8_t how = take(s);
        size_t n = (size_t)take(s) << 8;

        chunk.offset = h->input_offset + (how & 64 ? 1 : 0);
        chunk.eof = (how & 3) == 3;
        h->wild |= !h->started || h->input_ended || n > h->input_credit || how & 64;
        for (size_t i = 0; i < n; i++)
                bytes[i] = world_byte(0, h->input_offset + i);
        chunk.data = (ProtobufCBinaryData){n, bytes};
        h->input_offset += n;
        h->input_credit -= min_size(n, h->input_credit);
        h->input_ended |= chunk.eof;
        SAY(h, input, INPUT, &chunk, false);
}

static void host_credits(struct host *h, struct steps *s)
{
        Wb__Credit credit = WB__CREDIT__INIT;
        int stream = take(s) & 1;

        credit.stream = stream ? WB__STREAM__STDERR : WB__STREAM__STDOUT;
        credit.bytes = take_window(s);
        h->out[stream].credit += credit.bytes;
        SAY(h, credit, CREDIT, &credit, false);
}

/* Before it is started too: the agent keeps a signal for then; not in the middle of a start. */
static void host_signals(struct host *h, struct steps *s)
{
        Wb__Signal signal = WB__SIGNAL__INIT;
        Wb__TerminalSize size = WB__TERMINAL_SIZE__INIT;
        uint8_t number = take(s);

        signal.number = number;
        size.rows = size.columns = number;
        if (number & 1)
                SAY(h, signal, SIGNAL, &signal, false);
        else
                SAY(h, resize, RESIZE, &size, false);
}

/* ---- what a host says of an exec that is there */

static char *id_of(struct steps *s)
{
        static char none[] = "x0-none";
        uint8_t n = take(s);
        struct exec *x;

        TAILQ_FOREACH (x, &agent.execs->execs, entry)
                if (n-- == 0)
                        return x->id;
        return none;
}

static void host_attaches(struct host *h, struct steps *s)
{
        Wb__ExecAttach attach = WB__EXEC_ATTACH__INIT;

        attach.id = id_of(s);
        attach.stdout_offset = (uint64_t)take(s) << take(s) % 64;
        attach.stderr_offset = take(s);
        attach.output_window_bytes = take_window(s);
        h->out[EXEC_STDOUT].credit = h->out[EXEC_STDERR].credit = attach.output_window_bytes;
        SAY(h, exec_attach, EXEC_ATTACH, &attach, true);
}

static void host_asks(struct host *h, struct steps *s)
{
        Wb__ExecKill kill_it = WB__EXEC_KILL__INIT;
        Wb__ExecList list = WB__EXEC_LIST__INIT;
        Wb__ExecLimit limit = WB__EXEC_LIMIT__INIT;
        Wb__ExecLimits limits = WB__EXEC_LIMITS__INIT;
        uint8_t what = take(s);

        kill_it.id = limit.id = id_of(s);
        kill_it.signal = take(s);
        limit.limits = &limits;
        limit.memory_set = true;
        limits.memory_bytes = what;
        if (what % 4 == 0)
                SAY(h, exec_list, EXEC_LIST, &list, true);
        else if (what % 4 == 1)
                SAY(h, exec_limit, EXEC_LIMIT, &limit, true);
        else
                SAY(h, exec_kill, EXEC_KILL, &kill_it, true);
}

static void host_says_anything(struct host *h, struct steps *s)
{
        uint8_t bytes[FRAME_HEADER_BYTES + 64];
        size_t n = take(s) % 65;

        frame_header(n, bytes);
        for (size_t i = 0; i < n; i++)
                bytes[FRAME_HEADER_BYTES + i] = take(s);
        h->wild = h->opened = true;
        say_bytes(h, bytes, FRAME_HEADER_BYTES + n);
}

static void host_step(uint8_t what, struct steps *s)
{
        static void (*const steps[])(struct host *, struct steps *) = {host_starts, host_goes_on, host_inputs,
                host_credits, host_signals, host_attaches, host_asks, host_says_anything};
        struct host *h = &hosts[what / 16 % HOSTS];
        size_t n = sizeof(steps) / sizeof(steps[0]);

        if (what % 16 < n)
                steps[what % 16](h, s);
        else if (what % 16 == n)
                host_reset(h);
        else
                host_reads(h, (size_t)take(s) << 7);
}

/* ---- commands, and time */

static void fire(struct event *timer)
{
        if (evtimer_initialized(timer) && evtimer_pending(timer, NULL))
                event_active(timer, EV_TIMEOUT, 0);
}

/* What a timer would do, without its wait. */
static void pass_time(uint8_t which)
{
        struct exec *x;

        TAILQ_FOREACH (x, &agent.execs->execs, entry) {
                if (which & 1)
                        fire(&x->timer);
                if (which & 2)
                        fire(&x->ending);
                if (which & 4)
                        fire(&x->patience);
        }
        turn();
}

/* What the kernel would tell of a cgroup that has become empty. */
static void sweep(void)
{
        struct exec *x;

        TAILQ_FOREACH (x, &agent.execs->execs, entry)
                if (x->watch >= 0 && x->state == EXEC_ENDED)
                        exec_sweep(x);
}

static void command_step(uint8_t what, struct steps *s)
{
        struct command *c = &world_commands[what / 16 % WORLD_COMMANDS];
        uint8_t detail = take(s);

        if (!c->there)
                return;
        switch (what % 16) {
        case 0: world_failed(agent.execs, c, detail % (SPAWN_INTERPRETER + 2), 1 + detail % 40); break;
        case 1: world_keeper_dies(c); break;
        case 2: world_close(c, detail % 3); break;
        case 3:
        case 4: world_read(c, (size_t)detail << 6); break;
        case 5: world_leader_ends(agent.execs, c, detail & 1 ? detail << 8 : detail & 0x8f); break;
        case 6: world_all_gone(agent.execs, c); break;
        case 7:
        case 8:
        case 9: world_executed(c); break;
        default: world_write(c, 1 + (detail & 1), (size_t)detail << 5); break;
        }
}

static void step(struct steps *s)
{
        uint8_t kind = take(s), what = take(s);

        if (kind % 16 < 9)
                host_step(what, s);
        else if (kind % 16 < 15)
                command_step(what, s);
        else
                pass_time(what);
        turn();
        world_reap(agent.execs);
        sweep();
        turn();
}

/* ---- a run */

static int open_any(struct control *c, const Wb__ToAgent *m)
{
        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_EXEC_START: exec_open_start(agent.execs, c, m->exec_start); return 0;
        case WB__TO_AGENT__BODY_EXEC_ATTACH: exec_open_attach(agent.execs, c, m->exec_attach); return 0;
        case WB__TO_AGENT__BODY_EXEC_KILL: exec_open_kill(agent.execs, c, m->exec_kill); return 0;
        case WB__TO_AGENT__BODY_EXEC_LIST: exec_open_list(agent.execs, c); return 0;
        case WB__TO_AGENT__BODY_EXEC_LIMIT: exec_open_limit(agent.execs, c, m->exec_limit); return 0;
        default: return -EPROTO;
        }
}

static unsigned open_descriptors(void)
{
        unsigned n = 0;

        for (int fd = 0; fd < FDS_LOOKED; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

/* Hosts go, commands end, time passes: then only results are kept. */
static void end_all(void)
{
        const struct exec *x;
        unsigned ended = 0;

        for (size_t i = 0; i < HOSTS; i++)
                host_reset(&hosts[i]);
        turn();
        world_reap(agent.execs);
        for (size_t i = 0; i < WORLD_COMMANDS; i++)
                if (world_commands[i].there)
                        world_all_gone(agent.execs, &world_commands[i]);
        for (int i = 0; i < 4; i++)
                pass_time(7);
        sweep();
        TAILQ_FOREACH (x, &agent.execs->execs, entry) {
                MUST(x->state == EXEC_ENDED && !exec_is_held(x) && LIST_EMPTY(&x->viewers));
                ended++;
        }
        MUST(ended <= EXEC_KEPT_MAX && exec_table_running(agent.execs) == 0);
        MUST(agent.execs->gathered_bytes == 0);
        while (pool.oldest) /* those that linger */
                control_free(pool.oldest);
        MUST(pool.n == 0 && pool.reader_bytes == 0);
}

static void set_up(void)
{
        log_setup("fuzz_exec", LOG_LEVEL_ERROR);
        agent.base = event_base_new();
        agent.gate.state = GATE_OPEN;
        pool = (struct control_pool){.agent = &agent, .open = open_any};
        for (size_t i = 0; i < HOSTS; i++)
                hosts[i].fd = -1;
        MUST(agent.base && secret_store_new(NULL, 0, 0, &agent.secrets) == 0);
        MUST(resume_watch_new(&agent, NULL, &agent.resume) == 0 && sentinel_new(&agent, &agent.sentinel) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct steps s = {data, n};
        unsigned before;

        if (!agent.base)
                set_up();
        before = open_descriptors();
        world_start(take(&s) & 1);
        agent.transport.kind = TRANSPORT_UNIX;
        MUST(exec_table_new(&agent, &agent.execs) == 0);
        for (int i = 0; s.n && i < STEPS_MAX; i++)
                step(&s);
        end_all();
        exec_table_free(agent.execs);
        turn();
        MUST(open_descriptors() == before);
        return 0;
}
