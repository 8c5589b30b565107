/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/monitor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "broker/audit_notary.h"
#include "broker/ca_file.h"
#include "broker/crypto.h"
#include "broker/evidence_guard.h"
#include "broker/ipc.h"
#include "broker/monitor_start.h"
#include "broker/sandbox.h"
#include "broker/vm_socket.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/wipe.h"
#include "proto/wire/limits.h"

/* What the broker may need beyond --drain-s to write down what it cut. */
#define GRACE_NS (5 * NSEC_PER_SEC)

/* For looking at a process: milliseconds, but for one that does not want to be looked at. */
#define EVIDENCE_LIMIT_NS (5 * NSEC_PER_SEC)

enum monitor_state {
        MONITOR_STARTING, /* until IPC_READY */
        MONITOR_RUNNING,
        MONITOR_RELOADING, /* until IPC_RELOADED */
        MONITOR_DRAINING,
        MONITOR_HURRYING, /* a second signal came */
};

struct monitor {
        const struct broker_options *options;
        const struct config *config; /* as started: what a reload may not change */
        char *control_path;
        enum monitor_state state;
        bool reload_again; /* SIGHUP came while one was under way */
        bool killed;
        int sock;
        int signal_fd;
        int pidfd;
        pid_t pid;
        uint64_t kill_at_ns; /* 0: not yet draining */
        struct evidence_digests digests;
        struct audit_notary *notary;
};

/* ---- questions of the broker; every one is taken as if a guest had asked it */

static void take_transport(const struct ipc_frame *frame, struct transport *ret)
{
        *ret = (struct transport){
                .kind = frame->transport == TRANSPORT_HYBRID ? TRANSPORT_HYBRID : TRANSPORT_UNIX, .path = frame->path};
}

static int answer_evidence(struct monitor *m, const struct ipc_frame *question, struct ipc_frame *answer, int *ret_fd)
{
        if (question->number == 0 || question->number > INT32_MAX)
                return -EINVAL;
        return evidence_guard(
                evidence_gather, EVIDENCE_LIMIT_NS, &m->digests, (int)question->number, &answer->evidence, ret_fd);
}

/* Both listeners of a VM, or none. */
static int listen_for_vm(const struct transport *t, uid_t vmm_uid, int ret_fds[IPC_FDS_MAX], size_t *ret_fds_n)
{
        _cleanup_close_ int egress = -1, service = -1;
        int r = vm_socket_listen(t, WB_PORT_EGRESS, vmm_uid, &egress);

        if (r < 0)
                return r;
        r = vm_socket_listen(t, WB_PORT_SERVICE, vmm_uid, &service);
        if (r < 0) {
                vm_socket_unlink(t, WB_PORT_EGRESS);
                return r;
        }
        ret_fds[0] = steal_fd(&egress);
        ret_fds[1] = steal_fd(&service);
        *ret_fds_n = 2;
        return 0;
}

static int answer_socket(const struct ipc_frame *question, int ret_fds[IPC_FDS_MAX], size_t *ret_fds_n)
{
        uid_t vmm_uid = question->number >= UINT32_MAX ? (uid_t)-1 : (uid_t)question->number;
        struct transport t;
        int r;

        take_transport(question, &t);
        if (question->path[0] != '/')
                return -EINVAL;
        if (question->kind == IPC_ASK_LISTEN)
                return listen_for_vm(&t, vmm_uid, ret_fds, ret_fds_n);
        if (question->kind == IPC_ASK_DIAL) {
                r = vm_socket_dial(&t, &ret_fds[0]);
                *ret_fds_n = r == 0;
                return r;
        }
        vm_socket_unlink(&t, WB_PORT_EGRESS);
        vm_socket_unlink(&t, WB_PORT_SERVICE);
        return 0;
}

/* The text goes as a descriptor, since a frame has no room for it and is nothing that is wiped. */
static int answer_ca(const struct monitor *m, const struct ipc_frame *question, int *ret_fd)
{
        _cleanup_close_ int fd = memfd_create("wbbroker-ca", MFD_CLOEXEC);
        _cleanup_(wipe_freep) char *text = NULL;
        size_t n = 0;
        int r = fd < 0 ? -errno : ca_file_get(m->config->state_dir, question->number == 1, &text, &n);

        if (r == 0)
                r = io_write_full(fd, text, n);
        if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
                r = -errno;
        if (r == 0)
                *ret_fd = steal_fd(&fd);
        return r;
}

static int answer_question(struct monitor *m, const struct ipc_frame *question)
{
        struct ipc_frame answer = {.kind = IPC_ANSWER};
        int fds[IPC_FDS_MAX], r;
        size_t fds_n = 0;

        fds[0] = -1;
        if (question->kind == IPC_ASK_EVIDENCE) {
                answer.result = answer_evidence(m, question, &answer, &fds[0]);
                fds_n = fds[0] >= 0;
        } else if (question->kind == IPC_ASK_CA) {
                answer.result = answer_ca(m, question, &fds[0]);
                fds_n = fds[0] >= 0;
        } else {
                answer.result = answer_socket(question, fds, &fds_n);
        }
        r = ipc_send(m->sock, &answer, fds, fds_n);
        for (size_t i = 0; i < fds_n; i++)
                close_fd(fds[i]);
        return r;
}

/* ---- configuration */

static int send_files(
        struct monitor *m, enum ipc_kind kind, const struct file_set *files, const int *more, size_t more_n)
{
        const struct ipc_frame frame = {.kind = kind};
        _cleanup_close_ int memfd = -1;
        int fds[IPC_FDS_MAX], r;

        r = file_set_pack(files, &memfd);
        if (r < 0)
                return r;
        fds[0] = memfd;
        for (size_t i = 0; i < more_n; i++)
                fds[1 + i] = more[i];
        return ipc_send(m->sock, &frame, fds, 1 + more_n);
}

static bool same_text(const char *a, const char *b)
{
        return a == b || (a && b && strcmp(a, b) == 0);
}

/* What is built into the running processes, by its key: NULL, or the first that differs. */
static const char *find_fixed_change(const struct config *now, const struct config *next)
{
        if (!same_text(now->state_dir, next->state_dir))
                return "state_dir";
        if (!same_text(now->run_dir, next->run_dir))
                return "run_dir";
        if (!same_text(now->user, next->user))
                return "user";
        if (!same_text(now->audit_dir, next->audit_dir))
                return "audit.dir";
        if (now->workers != next->workers)
                return "workers";
        return now->vsock_port != next->vsock_port ? "vsock.port" : NULL;
}

static int read_again(struct monitor *m, struct file_set **ret, struct yaml_error *error)
{
        struct setup *setup = NULL;
        const char *changed;
        int r = file_set_read(m->options->config, ret, error);

        if (r == 0)
                r = setup_load(*ret, &setup, error);
        if (r != 0)
                return r;
        changed = find_fixed_change(m->config, setup->config);
        if (changed)
                log_error("%s: `%s` cannot change while the broker runs; restart it", m->options->config, changed);
        setup_free(setup);
        return changed ? -EBUSY : 0;
}

static void notify_reloading(void)
{
        (void)sd_notifyf(
                0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(clock_monotonic_ns() / NSEC_PER_USEC));
}

static void reload(struct monitor *m)
{
        struct yaml_error error = {0};
        struct file_set *files = NULL;
        int r;

        notify_reloading();
        r = read_again(m, &files, &error);
        if (r == YAML_E_INVALID)
                yaml_error_print(&error);
        if (r == 0)
                r = send_files(m, IPC_RELOAD, files, NULL, 0);
        if (r == 0) {
                m->state = MONITOR_RELOADING;
        } else {
                log_error("not reloaded; what was loaded stays in force");
                (void)ipc_send(m->sock, &(struct ipc_frame){.kind = IPC_RELOAD_REFUSED, .result = r > 0 ? -EINVAL : r},
                        NULL, 0);
                (void)sd_notify(0, "READY=1");
        }
        file_set_free(files);
        yaml_error_done(&error);
}

static void reloaded(struct monitor *m, int r)
{
        if (m->state == MONITOR_RELOADING)
                m->state = MONITOR_RUNNING;
        if (r == 0)
                log_info("reloaded %s", m->options->config);
        else
                log_error("not reloaded; what was loaded stays in force");
        (void)sd_notify(0, "READY=1");
        if (m->reload_again && m->state == MONITOR_RUNNING) {
                m->reload_again = false;
                reload(m);
        }
}

/* ---- events */

static void kill_broker(struct monitor *m)
{
        if (!m->killed)
                (void)kill(m->pid, SIGKILL);
        m->killed = true;
}

static void drain(struct monitor *m)
{
        struct ipc_frame frame = {.kind = IPC_DRAIN, .number = m->options->drain_s * MSEC_PER_SEC};
        bool again = m->state >= MONITOR_DRAINING;

        if (again)
                frame.number = 0;
        else
                (void)sd_notify(0, "STOPPING=1");
        m->state = again ? MONITOR_HURRYING : MONITOR_DRAINING;
        m->kill_at_ns = clock_monotonic_ns() + frame.number * NSEC_PER_MSEC + GRACE_NS;
        if (ipc_send(m->sock, &frame, NULL, 0) < 0)
                kill_broker(m);
}

/* At once, or when what is under way is done. */
static void want_reload(struct monitor *m)
{
        if (m->state == MONITOR_RUNNING)
                reload(m);
        else if (m->state == MONITOR_STARTING || m->state == MONITOR_RELOADING)
                m->reload_again = true;
}

static void take_signal(struct monitor *m)
{
        struct signalfd_siginfo info;

        if (read(m->signal_fd, &info, sizeof(info)) != sizeof(info))
                return;
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
                drain(m);
        else if (info.ssi_signo == SIGHUP)
                want_reload(m);
}

static void ready(struct monitor *m)
{
        if (m->state != MONITOR_STARTING)
                return;
        m->state = MONITOR_RUNNING;
        log_info("ready");
        (void)sd_notify(0, "READY=1");
        if (m->reload_again) {
                m->reload_again = false;
                reload(m);
        }
}

/* 0, or negative when the broker is no longer one to be listened to. */
static int take_frame(struct monitor *m)
{
        int fds[IPC_FDS_MAX];
        struct ipc_frame frame;
        size_t fds_n;
        int r = ipc_receive(m->sock, &frame, fds, &fds_n);

        if (r == -EAGAIN)
                return 0;
        if (r < 0)
                return r;
        for (size_t i = 0; i < fds_n; i++) /* the broker has none to give */
                close_fd(fds[i]);
        switch ((enum ipc_kind)frame.kind) {
        case IPC_READY: ready(m); return 0;
        case IPC_RELOADED: reloaded(m, frame.result); return 0;
        case IPC_WANT_RELOAD: want_reload(m); return 0;
        case IPC_ASK_CA:
        case IPC_ASK_EVIDENCE:
        case IPC_ASK_LISTEN:
        case IPC_ASK_UNLISTEN:
        case IPC_ASK_DIAL: return answer_question(m, &frame);
        case IPC_START:
        case IPC_RELOAD:
        case IPC_RELOAD_REFUSED:
        case IPC_DRAIN:
        case IPC_ANSWER:
        case IPC_KIND_MAX_: break;
        }
        return -EBADMSG;
}

static int timeout_ms(const struct monitor *m)
{
        uint64_t now_ns = clock_monotonic_ns();

        if (!m->kill_at_ns || m->killed)
                return -1;
        return m->kill_at_ns <= now_ns ? 0 : (int)((m->kill_at_ns - now_ns) / NSEC_PER_MSEC + 1);
}

/* The exit status of the whole: 0 only where the broker ended well because it was told to. */
static int reap(struct monitor *m)
{
        int status = 0;

        while (waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
                continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && m->state >= MONITOR_DRAINING)
                return EXIT_SUCCESS;
        if (WIFSIGNALED(status))
                log_error("the broker process was ended by signal %d; so this ends too", WTERMSIG(status));
        else if (m->state != MONITOR_STARTING)
                log_error("the broker process ended with status %d; so this ends too", WEXITSTATUS(status));
        return EXIT_FAILURE;
}

static int run(struct monitor *m)
{
        for (;;) {
                struct pollfd p[] = {{.fd = m->pidfd, .events = POLLIN}, {.fd = m->signal_fd, .events = POLLIN},
                        {.fd = m->sock, .events = POLLIN}, {.fd = audit_notary_fd(m->notary), .events = POLLIN}};
                int n = poll(p, 4, timeout_ms(m)), r = 0;

                if (n < 0 && errno != EINTR)
                        return log_errno(-errno, "cannot wait");
                if (n == 0) {
                        log_warning("the broker process does not end; it is killed");
                        kill_broker(m);
                }
                if (n <= 0)
                        continue;
                if (p[3].revents)
                        audit_notary_serve(m->notary);
                if (p[2].revents)
                        r = take_frame(m);
                if (r < 0 && r != -EPIPE && !m->killed)
                        (void)log_errno(r, "the broker process cannot be understood; it is killed");
                if (r < 0) {
                        /* At its end of file the process is about to end by itself; after anything else it is not
                         * trusted to. */
                        m->sock = close_fd(m->sock);
                        if (r != -EPIPE)
                                kill_broker(m);
                }
                if (p[1].revents)
                        take_signal(m);
                if (p[0].revents)
                        return reap(m);
        }
}

static int open_signals(int *ret_fd)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;
        *ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return *ret_fd < 0 ? -errno : 0;
}

/*
 * None where the configuration has no `vsock`. The service port is always the same, so of two brokers on one host only
 * one has it: guests of the other have the proxy alone.
 */
static int listen_vsock(const struct config *config, int *ret_egress, int *ret_service)
{
        const struct transport t = {.kind = TRANSPORT_VSOCK};
        int r;

        if (!config->vsock_port)
                return 0;
        r = transport_listen_host(&t, (uint32_t)config->vsock_port, ret_egress);
        if (r < 0)
                return log_errno(r, "cannot listen on vsock port %u", (unsigned)config->vsock_port);
        r = transport_listen_host(&t, WB_PORT_SERVICE, ret_service);
        if (r < 0)
                log_write_errno(
                        LOG_LEVEL_WARNING, r, "no names for guests: cannot listen on vsock port %u", WB_PORT_SERVICE);
        return 0;
}

static int open_notary(struct monitor *m, int *ret_fd)
{
        int fds[2], r = audit_notary_pair(fds);

        if (r < 0)
                return log_errno(r, "cannot make a socketpair");
        r = audit_notary_new(m->config->state_dir, fds[0], &m->notary);
        if (r == 0)
                *ret_fd = fds[1];
        else
                close_fd(fds[1]);
        return r;
}

/* Opens what only the monitor can, starts the broker and gives it all. */
static int start(struct monitor *m, const struct file_set *files)
{
        _cleanup_close_ int control = -1, egress = -1, service = -1, broker_end = -1, notary = -1;
        struct broker_identity identity;
        int fds[4], r;

        r = broker_identity_find(m->config->user, &identity);
        if (r == 0)
                r = monitor_make_directories(m->config, &identity);
        if (r == 0)
                r = monitor_listen_control(m->config, &identity, &control);
        if (r == 0)
                r = open_notary(m, &notary);
        if (r < 0)
                return r;
        if (asprintf(&m->control_path, "%s/control.sock", m->config->run_dir) < 0)
                return log_oom();
        r = listen_vsock(m->config, &egress, &service);
        if (r < 0)
                return r;
        r = ipc_pair(fds);
        if (r < 0)
                return log_errno(r, "cannot make a socketpair");
        m->sock = fds[0];
        broker_end = fds[1];
        r = monitor_start_broker(&identity, broker_end, &m->pid, &m->pidfd);
        if (r < 0)
                return r;
        (void)io_set_nonblock(m->sock);
        fds[0] = control;
        fds[1] = notary;
        fds[2] = egress;
        fds[3] = service;
        r = send_files(m, IPC_START, files, fds, 2u + (egress >= 0) + (service >= 0));
        if (r < 0) {
                kill_broker(m);
                (void)log_errno(r, "cannot give the broker its configuration");
        }
        return 0;
}

int monitor_run(const struct broker_options *options, const struct file_set *files, const struct config *config)
{
        struct monitor m = {.options = options, .config = config, .sock = -1, .signal_fd = -1, .pidfd = -1};
        int r;

        sandbox_forbid_dumps();
        if (crypto_init() < 0)
                log_error("the cryptographic library does not start");
        r = open_signals(&m.signal_fd);
        if (r < 0)
                (void)log_errno(r, "cannot take signals");
        else
                r = start(&m, files);
        r = r == 0 ? run(&m) : EXIT_FAILURE;
        if (m.control_path)
                (void)unlink(m.control_path);
        free(m.control_path);
        audit_notary_free(m.notary);
        close_fd(m.sock);
        close_fd(m.signal_fd);
        close_fd(m.pidfd);
        return r < 0 ? EXIT_FAILURE : r;
}
