/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/broker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/thread.h>
#include <jansson.h>

#include "broker/ca.h"
#include "broker/capacity.h"
#include "broker/clock_check.h"
#include "broker/control.h"
#include "broker/crypto.h"
#include "broker/file_set.h"
#include "broker/interception.h"
#include "broker/ipc.h"
#include "broker/listener.h"
#include "broker/monitor_client.h"
#include "broker/registry.h"
#include "broker/reload.h"
#include "broker/sandbox.h"
#include "broker/settings.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/wipe.h"
#include "proto/wire/limits.h"

struct broker {
        struct event_base *base;
        struct monitor_client *monitor;
        struct audit *audit;
        struct worker *workers[WORKERS_MAX];
        struct registry registry;
        struct loaded loaded;
        struct control *control;
        struct clock_keeper *clocks;
        int vsock_fd;         /* of the egress port; -1: none */
        int vsock_service_fd; /* of the service port */
        int addresses_fd;
        struct listener *vsock;
        struct listener *vsock_service;
        struct event *addresses_event;
        struct event *drained_event;
        bool draining;
};

/* ---- what comes at run time */

static void record(struct broker *b, enum audit_event event, const char *detail)
{
        struct audit_record r = AUDIT_RECORD_INIT(event);

        r.detail = detail;
        (void)audit_submit(b->audit, &r, NULL, NULL);
}

/* What a crash left behind is told where auditors look. */
static void record_start(struct broker *b)
{
        uint64_t cut_bytes = audit_cut_bytes(b->audit);
        char text[128];

        (void)snprintf(text, sizeof(text), "%s; %llu bytes of half a record were cut off the log's end", WB_VERSION,
                (unsigned long long)cut_bytes);
        record(b, AUDIT_START, cut_bytes ? text : WB_VERSION);
}

/* Sessions have had their time, or there were none: ends the loop. */
static void on_drained(evutil_socket_t fd, short events, void *userdata)
{
        struct broker *b = userdata;

        (void)fd;
        (void)events;
        (void)event_base_loopbreak(b->base);
}

static bool has_sessions(struct broker *b)
{
        struct vm_entry *e;

        TAILQ_FOREACH (e, &b->registry.vms, link) {
                struct vm_stats stats;

                if (worker_vm_stats(e->worker, e->vm, &stats) == 0 && stats.sessions_open)
                        return true;
        }
        return false;
}

/* Looks every 50 ms whether all sessions have ended. */
static void on_drain_check(evutil_socket_t fd, short events, void *userdata)
{
        struct broker *b = userdata;

        (void)fd;
        (void)events;
        if (!has_sessions(b))
                (void)event_base_loopbreak(b->base);
}

static void drain(struct broker *b, uint64_t ms)
{
        const struct timeval at_most = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
        const struct timeval every = {.tv_usec = 50000};

        if (!b->draining) {
                log_info("draining for at most %llu s", (unsigned long long)(ms / 1000));
                control_stop(b->control);
                for (size_t i = 0; i < b->registry.workers_n; i++)
                        worker_drain_start(b->workers[i], ms);
        }
        if (!b->draining && ms) {
                b->drained_event = event_new(b->base, -1, EV_PERSIST, on_drain_check, b);
                if (b->drained_event)
                        (void)event_add(b->drained_event, &every);
        }
        b->draining = true;
        if (event_base_once(b->base, -1, EV_TIMEOUT, on_drained, b, &at_most) < 0)
                (void)event_base_loopbreak(b->base);
}

static void on_monitor(void *userdata, const struct ipc_frame *frame, int *fds, size_t fds_n)
{
        struct broker *b = userdata;

        if (frame->kind == IPC_DRAIN)
                drain(b, frame->number);
        if (frame->kind == IPC_RELOAD) {
                int r = fds_n ? reload_apply(&b->loaded, &b->registry, fds[0]) : -EBADMSG;

                control_reloaded(b->control, r);
                (void)monitor_tell(b->monitor, IPC_RELOADED, r);
        }
        if (frame->kind == IPC_RELOAD_REFUSED)
                control_reloaded(b->control, frame->result);
        for (size_t i = 0; i < fds_n; i++)
                close_fd(fds[i]);
}

static void on_addresses(evutil_socket_t fd, short events, void *userdata)
{
        struct broker *b = userdata;

        (void)events;
        if (settings_addresses_changed(fd) && reload_settings(&b->loaded, &b->registry) < 0)
                log_error("the host's addresses changed, and the floor could not follow");
}

/* Guests of kernel vhost-vsock come in here; which VM it is, is the CID that the host's kernel gave it. */
static void take_vsock(struct broker *b, int peer, uint32_t port)
{
        struct vm_entry *e = NULL;
        uint32_t cid;

        if (transport_peer_cid(peer, &cid) == 0)
                e = registry_find_cid(&b->registry, cid);
        if (e)
                (void)worker_vsock_connection(e->worker, e->vm, port, peer);
        else
                close_fd(peer);
}

static void accept_vsock(void *userdata, int fd)
{
        take_vsock(userdata, fd, WB_PORT_EGRESS);
}

static void accept_vsock_service(void *userdata, int fd)
{
        take_vsock(userdata, fd, WB_PORT_SERVICE);
}

/* *fd, if there is one, is the listener's from here on. */
static int listen_vsock(struct broker *b, int *fd, void (*accept)(void *userdata, int fd), struct listener **ret)
{
        const struct listener_calls calls = {.accept = accept};
        int r = *fd < 0 ? 0 : listener_new(b->base, *fd, &calls, b, ret);

        if (r == 0)
                *fd = -1;
        return r;
}

/* ---- start and end */

struct start {
        struct file_set *files;
        int control_fd;
        int notary_fd;
        int vsock_fd; /* -1: none */
        int vsock_service_fd;
};

static int receive_start(struct start *ret)
{
        int fds[IPC_FDS_MAX];
        struct ipc_frame frame;
        size_t fds_n;
        int r = ipc_receive(BROKER_MONITOR_FD, &frame, fds, &fds_n);

        if (r < 0 || frame.kind != IPC_START || fds_n < 3)
                return r < 0 ? r : -EBADMSG;
        r = file_set_unpack(fds[0], &ret->files);
        close_fd(fds[0]);
        ret->control_fd = fds[1];
        ret->notary_fd = fds[2];
        ret->vsock_fd = fds_n > 3 ? fds[3] : -1;
        ret->vsock_service_fd = fds_n > 4 ? fds[4] : -1;
        return r;
}

static int load(struct broker *b, struct file_set *files)
{
        struct yaml_error error = {0};
        int r = setup_load(files, &b->loaded.setup, &error);

        if (r == YAML_E_INVALID)
                yaml_error_print(&error);
        yaml_error_done(&error);
        return r == YAML_E_INVALID ? -EINVAL : r;
}

static int open_audit(struct broker *b, int notary_fd)
{
        const struct config *c = b->loaded.setup->config;
        const struct audit_options options = {.dir = c->audit_dir,
                .rotate_bytes = c->audit_rotate_bytes,
                .sync = (enum audit_sync)c->audit_sync,
                .required = c->audit_required,
                .notary_fd = notary_fd};
        int r = audit_new(&options, &b->audit);

        if (r == -EBUSY)
                log_error("another broker writes the audit log in %s", c->audit_dir);
        else if (r == -EBADMSG)
                log_error("%s/audit.log does not end in a record; move it away", c->audit_dir);
        else if (r < 0)
                (void)log_errno(r, "cannot open the audit log in %s", c->audit_dir);
        return r;
}

static int start_workers(struct broker *b)
{
        uint64_t n = b->loaded.setup->config->workers;

        if (n == 0) {
                long cores = sysconf(_SC_NPROCESSORS_ONLN);

                n = cores < 1 ? 1 : cores > WORKERS_MAX ? WORKERS_MAX : (uint64_t)cores;
        }
        for (; b->registry.workers_n < n; b->registry.workers_n++) {
                int r = worker_new(b->audit, b->loaded.settings, &b->workers[b->registry.workers_n]);

                if (r < 0)
                        return log_errno(r, "cannot start a worker");
        }
        return 0;
}

static struct event *watch(struct event_base *base, int fd, event_callback_fn callback, void *userdata)
{
        struct event *e = event_new(base, fd, EV_READ | EV_PERSIST, callback, userdata);

        if (e && event_add(e, NULL) < 0) {
                event_free(e);
                e = NULL;
        }
        return e;
}

static int open_loop(struct broker *b, int control_fd)
{
        int r = monitor_client_new(b->base, BROKER_MONITOR_FD, on_monitor, b, &b->monitor);

        if (r < 0)
                return log_oom();
        b->registry.base = b->base;
        b->registry.monitor = b->monitor;
        b->registry.audit = b->audit;
        b->registry.workers = b->workers;
        b->registry.vsock_listens = b->vsock_fd >= 0;
        b->registry.rules = &b->loaded.setup->config->wall;
        b->registry.clock_check_s = b->loaded.setup->config->clock_check_s;
        interception_configure(&b->registry, b->loaded.setup);
        r = interception_load_ca(&b->registry, false);
        if (r < 0) /* the monitor has said why */
                log_write_errno(LOG_LEVEL_WARNING, r, "there is no interception CA: no TLS is intercepted");
        r = control_new(&b->registry, control_fd, CONTROL_IDLE_MS, &b->control);
        if (r < 0)
                return log_errno(r, "cannot serve the control socket");
        if (clock_keeper_new(&b->registry, &b->clocks) < 0)
                return log_oom();
        if (b->addresses_fd >= 0)
                b->addresses_event = watch(b->base, b->addresses_fd, on_addresses, b);
        r = listen_vsock(b, &b->vsock_fd, accept_vsock, &b->vsock);
        return r < 0 ? r : listen_vsock(b, &b->vsock_service_fd, accept_vsock_service, &b->vsock_service);
}

/* Everything up to the first byte of a guest. */
static int set_up(struct broker *b)
{
        struct start start = {.control_fd = -1, .notary_fd = -1, .vsock_fd = -1, .vsock_service_fd = -1};
        int r = receive_start(&start);

        if (r < 0)
                return log_errno(r, "the monitor gave nothing to start with");
        b->vsock_fd = start.vsock_fd;
        b->vsock_service_fd = start.vsock_service_fd;
        r = load(b, start.files);
        file_set_free(start.files);
        if (r < 0)
                return log_errno(r, "cannot load what the monitor gave");
        setup_check_trust(b->loaded.setup, NULL);
        if (settings_watch_addresses(&b->addresses_fd) < 0)
                log_warning("changes of the host's addresses cannot be followed");
        capacity_measure(&b->registry.capacity);
        if (crypto_init() < 0)
                return log_errno(-EIO, "the cryptographic library does not start");
        r = sandbox_enter(b->loaded.setup->config->audit_dir);
        if (r == 0)
                r = open_audit(b, start.notary_fd);
        if (r < 0)
                return r;
        record_start(b);
        r = settings_make(b->loaded.setup, NULL, &b->loaded.settings);
        if (r < 0)
                return log_errno(r, "cannot ask for the host's addresses");
        b->base = event_base_new();
        if (!b->base)
                return log_oom();
        r = start_workers(b);
        if (r == 0)
                r = open_loop(b, start.control_fd);
        if (r == 0)
                reload_add_vms(&b->loaded, &b->registry);
        return r;
}

static void tear_down(struct broker *b, const char *why)
{
        clock_keeper_free(b->clocks);
        registry_remove_all(&b->registry, why);
        ca_unref(b->registry.ca);
        control_free(b->control);
        for (size_t i = 0; i < b->registry.workers_n; i++)
                worker_free(b->workers[i]);
        if (b->audit)
                record(b, AUDIT_STOP, why);
        audit_free(b->audit);
        if (b->addresses_event)
                event_free(b->addresses_event);
        listener_free(b->vsock);
        listener_free(b->vsock_service);
        if (b->drained_event)
                event_free(b->drained_event);
        monitor_client_free(b->monitor);
        loaded_done(&b->loaded);
        if (b->base)
                event_base_free(b->base);
        close_fd(b->vsock_fd);
        close_fd(b->vsock_service_fd);
        close_fd(b->addresses_fd);
}

int broker_run(void)
{
        struct broker b = {.vsock_fd = -1, .vsock_service_fd = -1, .addresses_fd = -1};
        int r;

        TAILQ_INIT(&b.registry.vms);
        /* A terminal's Ctrl-C reaches both processes; the monitor decides what it means. */
        (void)signal(SIGINT, SIG_IGN);
        (void)signal(SIGTERM, SIG_IGN);
        (void)signal(SIGHUP, SIG_IGN);
        (void)signal(SIGPIPE, SIG_IGN);
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)evthread_use_pthreads();
        json_set_alloc_funcs(malloc, wipe_free); /* requests bring secrets */
        r = set_up(&b);
        if (r == 0)
                r = monitor_tell(b.monitor, IPC_READY, 0);
        if (r == 0)
                r = event_base_dispatch(b.base) < 0 ? -EIO : 0;
        tear_down(&b, r == 0 ? "the broker stops" : "the broker failed");
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
