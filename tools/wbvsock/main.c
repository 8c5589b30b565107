/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "tools/wbvsock/device.h"
#include "tools/wbvsock/host.h"
#include "tools/wbvsock/listener.h"
#include "tools/wbvsock/sandbox.h"
#include "tools/wbvsock/session.h"

#define EXIT_USAGE 2

#define HOST_BACKLOG 1024
#define NO_FD        UINT64_MAX

/* virtio 1.2, 5.10.4: 0, 1, 2 are reserved, and so is the largest of 32 bits; the upper 32 bits are zero. */
#define CID_FIRST 3u
#define CID_LAST  (UINT32_MAX - 1)

#define CONNECTIONS_MOST 65536u
#define BUFFER_LEAST     4096u
#define BUFFER_MOST      (16u * 1024u * 1024u)

/* Descriptors beside those of connections: sockets, the loop, eventfds, one message's. */
#define OTHER_FDS 64u

struct arguments {
        const char *socket;
        uint64_t socket_fd;
        const char *uds;
        const char *mode;
        uint64_t cid;
        uint64_t max_connections;
        uint64_t buffer_bytes;
        uint64_t ready_fd;
        bool once;
        bool die_with_parent;
        bool verbose;
        bool version;
        uint32_t mode_bits;
};

static const struct option_spec specs[] = {
        {"socket", 's', OPTION_STRING, offsetof(struct arguments, socket), "PATH",
                "vhost-user socket to listen on, for the VMM"},
        {"socket-fd", 0, OPTION_U64, offsetof(struct arguments, socket_fd), "FD",
                "the same, inherited: a listening socket, or one that is connected to the VMM (implies --once)"},
        {"uds", 'u', OPTION_STRING, offsetof(struct arguments, uds), "PATH",
                "where the host connects; the guest's connections to port P arrive at PATH_P"},
        {"cid", 'c', OPTION_U64, offsetof(struct arguments, cid), "N", "the guest's CID, 3 or more"},
        {"mode", 0, OPTION_STRING, offsetof(struct arguments, mode), "OCTAL", "permissions of the sockets (0600)"},
        {"max-connections", 0, OPTION_U64, offsetof(struct arguments, max_connections), "N",
                "opened by the guest, and as many opened by the host (1024)"},
        {"buffer", 0, OPTION_SIZE, offsetof(struct arguments, buffer_bytes), "SIZE",
                "what one connection may hold of the guest's bytes (128K)"},
        {"ready-fd", 0, OPTION_U64, offsetof(struct arguments, ready_fd), "FD",
                "gets a newline when both sockets listen, then is closed"},
        {"once", 0, OPTION_FLAG, offsetof(struct arguments, once), NULL, "end when the VMM disconnects"},
        {"die-with-parent", 0, OPTION_FLAG, offsetof(struct arguments, die_with_parent), NULL,
                "end when the starting process does"},
        {"verbose", 'v', OPTION_FLAG, offsetof(struct arguments, verbose), NULL, "say more"},
        {"version", 0, OPTION_FLAG, offsetof(struct arguments, version), NULL, "print the version"},
};

static const struct option_table table = {
        .usage = "wbvsock --socket PATH --uds PATH --cid N [OPTION]...",
        .summary = "The vsock device of one QEMU VM, over vhost-user: no kernel module, no root.",
        .example =
                "wbvsock --socket vm.vhost --uds vm.vsock --cid 3 &\n"
                "  qemu-system-x86_64 -M q35,memory-backend=mem -object memory-backend-memfd,id=mem,size=512M,share=on \\\n"
                "    -chardev socket,id=vsock,path=vm.vhost -device vhost-user-vsock-pci,chardev=vsock ...",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
};

struct program {
        const struct arguments *arguments;
        struct event_base *base;
        struct device *device;
        struct host *host;
        struct session *session; /* NULL: no VMM is connected */
        int vmm_fd;              /* listens for it; -1: it was connected from the start */
        struct event vmm_event;
        struct event term_event;
        struct event int_event;
        struct event ended_event;
        bool once;
};

static int check_sockets(const struct arguments *a)
{
        if (!a->uds)
                return options_usage_error(&table, "--uds is missing");
        if (!a->socket == (a->socket_fd == NO_FD))
                return options_usage_error(&table, "one of --socket and --socket-fd is wanted");
        if (a->socket && listener_check_path(a->socket, 0) < 0)
                return options_usage_error(&table, "--socket %s is too long for a unix socket", a->socket);
        if (listener_check_path(a->uds, LISTENER_SUFFIX_MAX) < 0)
                return options_usage_error(
                        &table, "--uds %s is too long for a unix socket with a port behind it", a->uds);
        if (a->socket_fd != NO_FD && a->socket_fd > INT32_MAX)
                return options_usage_error(&table, "--socket-fd is out of range");
        if (a->ready_fd != NO_FD && a->ready_fd > INT32_MAX)
                return options_usage_error(&table, "--ready-fd is out of range");
        return 0;
}

static int check_numbers(struct arguments *a)
{
        if (a->cid < CID_FIRST || a->cid > CID_LAST)
                return options_usage_error(&table, "--cid wants a number from %u to %u", CID_FIRST, CID_LAST);
        if (a->max_connections == 0 || a->max_connections > CONNECTIONS_MOST)
                return options_usage_error(&table, "--max-connections wants a number from 1 to %u", CONNECTIONS_MOST);
        if (a->buffer_bytes < BUFFER_LEAST || a->buffer_bytes > BUFFER_MOST)
                return options_usage_error(&table, "--buffer wants a size from 4K to 16M");
        if (parse_octal(a->mode, 0777, &a->mode_bits) < 0)
                return options_usage_error(&table, "--mode wants octal permissions, not '%s'", a->mode);
        return 0;
}

/* As many descriptors as the connections may need, or else fewer connections. */
static void raise_limit(struct arguments *a)
{
        struct rlimit limit;
        rlim_t want = 2 * a->max_connections + OTHER_FDS;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= want)
                return;
        limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur < want && limit.rlim_cur > 2 * OTHER_FDS) {
                a->max_connections = (limit.rlim_cur - OTHER_FDS) / 2;
                log_warning("%llu open files are allowed: at most %llu connections each way",
                        (unsigned long long)limit.rlim_cur, (unsigned long long)a->max_connections);
        }
}

static void notify(enum device_queue which, void *arg)
{
        const struct program *p = arg;

        session_notify(p->session, which);
}

static void broken(enum device_queue which, void *arg)
{
        const struct program *p = arg;

        session_report_broken(p->session, which);
}

static void end_session(struct program *p)
{
        struct session *s = p->session;

        if (!s)
                return;
        p->session = NULL;
        /* It may be due for this session still, and must not meet the next one. */
        event_del(&p->ended_event);
        session_free(s);
        log_debug("the VMM has disconnected");
        if (p->once)
                event_base_loopbreak(p->base);
}

/* Later, when no function of the session is on the stack. */
static void on_ended(evutil_socket_t fd, short what, void *arg)
{
        (void)fd;
        (void)what;
        end_session(arg);
}

static void ended(void *arg)
{
        struct program *p = arg;

        event_active(&p->ended_event, EV_TIMEOUT, 0);
}

/* Takes fd. */
static int begin_session(struct program *p, int fd)
{
        struct session_setup setup = {.base = p->base, .guest_cid = p->arguments->cid, .ended = ended, .arg = p};
        int r = session_new(&setup, fd, p->device, &p->session);

        if (r < 0)
                return log_oom();
        log_debug("a VMM has connected");
        return 0;
}

static void on_vmm(evutil_socket_t fd, short what, void *arg)
{
        struct program *p = arg;
        /* cppcheck-suppress nullPointer ; accept(2): no address is wanted */
        _cleanup_close_ int vmm = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        (void)what;
        if (vmm < 0)
                return;
        /* The new one may be seen before the old one's end is. */
        if (p->session && session_is_over(p->session))
                end_session(p);
        if (p->session) {
                log_warning("refusing a second VMM");
                return;
        }
        (void)begin_session(p, steal_fd(&vmm));
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
        struct program *p = arg;

        (void)fd;
        (void)what;
        event_base_loopbreak(p->base);
}

static int open_device(struct program *p)
{
        const struct arguments *a = p->arguments;
        struct device_setup setup = {
                .guest_cid = a->cid,
                .streams = {.base = p->base,
                        .path = a->uds,
                        .most = (uint32_t)a->max_connections,
                        .buffer_bytes = (uint32_t)a->buffer_bytes},
                .notify = notify,
                .broken = broken,
                .arg = p,
        };
        uint32_t seed;
        int fd, r;

        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                return log_errno(-errno, "no random bytes");
        if (device_new(&setup, seed, &p->device) < 0)
                return log_oom();
        r = listener_open(a->uds, a->mode_bits, HOST_BACKLOG, &fd);
        if (r < 0)
                return log_errno(r, "cannot listen on %s", a->uds);
        r = host_new(p->base, fd, (uint32_t)a->max_connections, p->device, &p->host);
        return r < 0 ? log_oom() : 0;
}

/* The socket that leads to the VMM: made, or inherited and then either listening or connected. */
static int open_vmm(struct program *p)
{
        const struct arguments *a = p->arguments;
        _cleanup_close_ int fd = -1;
        int r, listening = 1;
        socklen_t n = sizeof(listening);

        if (a->socket) {
                r = listener_open(a->socket, a->mode_bits, 1, &fd);
                if (r < 0)
                        return log_errno(r, "cannot listen on %s", a->socket);
        } else {
                fd = (int)a->socket_fd;
                if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0)
                        return log_errno(-errno, "--socket-fd %d is no socket", fd);
                (void)io_set_cloexec(fd, 1);
                r = io_set_nonblock(fd);
                if (r < 0)
                        return log_errno(r, "--socket-fd %d", fd);
        }
        if (!listening) {
                p->once = true;
                return begin_session(p, steal_fd(&fd));
        }
        p->vmm_fd = steal_fd(&fd);
        event_assign(&p->vmm_event, p->base, p->vmm_fd, EV_READ | EV_PERSIST, on_vmm, p);
        event_add(&p->vmm_event, NULL);
        return 0;
}

static int open_loop(struct program *p)
{
        (void)signal(SIGPIPE, SIG_IGN);
        p->base = event_base_new();
        if (!p->base)
                return log_oom();
        evsignal_assign(&p->term_event, p->base, SIGTERM, on_signal, p);
        evsignal_assign(&p->int_event, p->base, SIGINT, on_signal, p);
        evtimer_assign(&p->ended_event, p->base, on_ended, p);
        if (event_add(&p->term_event, NULL) < 0 || event_add(&p->int_event, NULL) < 0)
                return log_oom();
        return 0;
}

static int tell_ready(uint64_t ready_fd)
{
        _cleanup_close_ int fd = ready_fd == NO_FD ? -1 : (int)ready_fd;

        if (fd < 0)
                return 0;
        return write(fd, "\n", 1) == 1 ? 0 : log_errno(-errno, "--ready-fd %d", fd);
}

static int run(struct program *p)
{
        int r = open_loop(p);

        if (r == 0)
                r = open_device(p);
        if (r == 0)
                r = open_vmm(p);
        if (r == 0)
                r = sandbox_enter();
        if (r == 0)
                r = tell_ready(p->arguments->ready_fd);
        if (r == 0 && event_base_dispatch(p->base) < 0)
                r = log_errno(-EIO, "the event loop failed");
        return r;
}

static void done(struct program *p)
{
        p->once = false;
        end_session(p);
        if (p->vmm_fd >= 0) {
                event_del(&p->vmm_event);
                close_fd(p->vmm_fd);
                if (p->arguments->socket)
                        (void)unlink(p->arguments->socket);
        }
        if (p->host) {
                host_free(p->host);
                (void)unlink(p->arguments->uds);
        }
        if (p->device)
                device_free(p->device);
        if (!p->base)
                return;
        if (event_initialized(&p->term_event))
                event_del(&p->term_event);
        if (event_initialized(&p->int_event))
                event_del(&p->int_event);
        event_base_free(p->base);
}

int main(int argc, char **argv)
{
        int parent = (int)getppid(), r;
        struct arguments a = {
                .socket_fd = NO_FD,
                .ready_fd = NO_FD,
                .mode = "0600",
                .max_connections = 1024,
                .buffer_bytes = 128 * 1024,
        };
        struct program p = {.arguments = &a, .vmm_fd = -1};
        char **rest;
        size_t rest_n;

        log_setup("wbvsock", LOG_LEVEL_INFO);
        r = options_parse(&table, argc, argv, &a, &rest, &rest_n);
        if (r == OPTIONS_E_HELP)
                return 0;
        if (r < 0)
                return 1;
        if (r == 0 && a.version) {
                (void)printf("wbvsock %s\n", WB_VERSION);
                return 0;
        }
        if (r == 0 && rest_n)
                r = options_usage_error(&table, "'%s' is not wanted", rest[0]);
        if (r != 0 || check_sockets(&a) != 0 || check_numbers(&a) != 0)
                return EXIT_USAGE;
        if (a.verbose)
                log_setup("wbvsock", LOG_LEVEL_DEBUG);
        if (a.die_with_parent && sandbox_die_with_parent(parent) < 0)
                return 1;
        raise_limit(&a);
        p.once = a.once;
        r = run(&p);
        done(&p);
        return r < 0 ? 1 : 0;
}
