/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/worker.h"

#include <ares.h>
#include <errno.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "broker/inspect.h"
#include "broker/vm.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"

#define STOP_CHECK_MS 20u

LIST_HEAD(vm_list, vm);

struct worker {
        struct worker_context context;
        pthread_t thread;
        struct vm_list vms;
        bool stopping; /* ends as soon as no session is left, or drain_ends has passed */
        struct event drain_ends;
        struct event stop_check;
};

/*
 * A call from the main thread. It stands on the caller's stack, which waits until the worker has run it: nothing in the
 * worker blocks, so it is soon.
 */
struct call {
        struct mail mail;
        struct worker *worker;
        int (*run)(struct worker *w, struct call *c);
        int r;
        sem_t done;
        struct vm *vm;
        union {
                struct {
                        const struct vm_config *config;
                        struct vm **ret_vm;
                };
                struct policy *policy;
                struct worker_settings *settings;
                struct vm_stats *ret_stats;
                const struct capacity_share *share;
                struct {
                        int fd;
                        uint32_t port;
                };
                uint64_t drain_ms;
                struct {
                        bool ready;
                        uint64_t generation;
                        struct ca *ca;
                };
        };
};

static void on_call(struct mail *m)
{
        struct call *c = (struct call *)(void *)m;

        c->r = c->run(c->worker, c);
        sem_post(&c->done);
}

static int call(struct worker *w, struct call *c)
{
        c->mail.open = on_call;
        c->worker = w;
        sem_init(&c->done, 0, 0);
        mailbox_post(w->context.mailbox, &c->mail);
        while (sem_wait(&c->done) < 0)
                ;
        sem_destroy(&c->done);
        return c->r;
}

struct worker_settings *worker_settings_ref(struct worker_settings *s)
{
        __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
        return s;
}

void worker_settings_unref(struct worker_settings *s)
{
        if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
                return;
        floor_done(&s->floor);
        for (size_t i = 0; i < s->services_n; i++) {
                free(s->services[i].name);
                free(s->services[i].ports);
                free(s->services[i].connect);
        }
        free(s->services);
        free(s->dns_servers);
        inspect_trust_unref(s->trust);
        free(s);
}

static struct resolver_config resolver_config_of(const struct worker_settings *s)
{
        return (struct resolver_config){
                .servers = s->dns_servers,
                .servers_n = s->dns_servers_n,
                .timeout_ms = s->dns_timeout_ms,
                .cache_max_s = s->dns_cache_max_s,
        };
}

static bool any_session(const struct worker *w)
{
        const struct vm *vm;

        LIST_FOREACH (vm, &w->vms, in_worker)
                if (vm->sessions_n)
                        return true;
        return false;
}

static void cut_all(struct worker *w)
{
        struct vm *vm, *next;

        for (vm = LIST_FIRST(&w->vms); vm; vm = next) {
                next = LIST_NEXT(vm, in_worker);
                LIST_REMOVE(vm, in_worker);
                vm_free(vm);
        }
}

/* The thread must not end before each audit record that it waits for has come back: the audit thread would post to
 * nobody. */
static void on_stop_check(evutil_socket_t fd, short what, void *userdata)
{
        struct worker *w = userdata;
        const struct timeval again = {.tv_usec = STOP_CHECK_MS * 1000};

        (void)fd;
        (void)what;
        if (!any_session(w) || !event_pending(&w->drain_ends, EV_TIMEOUT, NULL))
                cut_all(w);
        if (LIST_EMPTY(&w->vms) && !w->context.audits_pending)
                event_base_loopbreak(w->context.base);
        else
                event_add(&w->stop_check, &again);
}

static void on_drain_end(evutil_socket_t fd, short what, void *userdata)
{
        (void)fd;
        (void)what;
        (void)userdata; /* that it is no longer pending says it all */
}

static void *thread_main(void *userdata)
{
        struct worker *w = userdata;

        (void)event_base_loop(w->context.base, EVLOOP_NO_EXIT_ON_EMPTY);
        return NULL;
}

/* Signals are the main thread's, and SIGPIPE, which splice(2) sends, is nobody's. */
static int start_thread(struct worker *w)
{
        sigset_t all, before;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int r = pthread_create(&w->thread, NULL, thread_main, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r == 0)
                (void)pthread_setname_np(w->thread, "worker");
        return -r;
}

static void worker_destroy(struct worker *w)
{
        cut_all(w);
        resolver_free(w->context.resolver);
        mailbox_free(w->context.mailbox);
        pipe_pool_done(&w->context.pipes);
        if (w->context.base)
                event_base_free(w->context.base);
        worker_settings_unref(w->context.settings);
        ares_library_cleanup();
        free(w);
}
DEFINE_CLEANUP(struct worker *, worker_destroy);

static struct event_base *new_base(void)
{
        struct event_config *config = event_config_new();
        struct event_base *base = NULL;

        if (!config)
                return NULL;
        if (!event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER))
                base = event_base_new_with_config(config);
        event_config_free(config);
        return base;
}

int worker_new(struct audit *audit, struct worker_settings *settings, struct worker **ret)
{
        if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
                return -ENOMEM;

        _cleanup_(worker_destroyp) struct worker *w = calloc(1, sizeof(*w));
        if (!w) {
                ares_library_cleanup();
                return -ENOMEM;
        }
        LIST_INIT(&w->vms);
        LIST_INIT(&w->context.inspects);
        w->context.audit = audit;
        w->context.share = (struct capacity_share){.sessions = CAPACITY_SESSIONS_MAX, .bytes = CAPACITY_BYTES_MAX};
        w->context.settings = worker_settings_ref(settings);
        w->context.base = new_base();
        if (!w->context.base)
                return -ENOMEM;
        event_assign(&w->drain_ends, w->context.base, -1, 0, on_drain_end, w);
        event_assign(&w->stop_check, w->context.base, -1, 0, on_stop_check, w);

        int r = mailbox_new(w->context.base, &w->context.mailbox);
        if (r < 0)
                return r;
        struct resolver_config config = resolver_config_of(settings);
        r = resolver_new(w->context.base, &config, &w->context.resolver);
        if (r < 0)
                return r;
        r = start_thread(w);
        if (r < 0)
                return r;
        *ret = STEAL(w);
        return 0;
}

static int run_drain(struct worker *w, struct call *c)
{
        struct timeval tv = {
                .tv_sec = (time_t)(c->drain_ms / 1000),
                .tv_usec = (suseconds_t)(c->drain_ms % 1000 * 1000),
        };
        struct vm *vm;

        w->context.draining = true;
        event_add(&w->drain_ends, &tv);
        LIST_FOREACH (vm, &w->vms, in_worker)
                vm_drain(vm);
        return 0;
}

void worker_drain_start(struct worker *w, uint64_t drain_ms)
{
        struct call c = {.run = run_drain, .drain_ms = drain_ms};

        (void)call(w, &c);
}

static int run_stop(struct worker *w, struct call *c)
{
        (void)c;
        w->stopping = true;
        event_active(&w->stop_check, 0, 0);
        return 0;
}

void worker_free(struct worker *w)
{
        struct call c = {.run = run_stop};

        if (!w)
                return;
        (void)call(w, &c);
        pthread_join(w->thread, NULL);
        worker_destroy(w);
}

static bool same_servers(const struct worker_settings *a, const struct worker_settings *b)
{
        if (a->dns_servers_n != b->dns_servers_n || a->dns_timeout_ms != b->dns_timeout_ms ||
                a->dns_cache_max_s != b->dns_cache_max_s)
                return false;
        for (size_t i = 0; i < a->dns_servers_n; i++)
                if (strcmp(a->dns_servers[i].text, b->dns_servers[i].text) != 0)
                        return false;
        return true;
}

static int run_set_settings(struct worker *w, struct call *c)
{
        struct worker_settings *old = w->context.settings;
        struct vm *vm;

        if (!same_servers(old, c->settings)) {
                struct resolver_config config = resolver_config_of(c->settings);
                int r = resolver_configure(w->context.resolver, &config);
                if (r < 0)
                        return r;
        }
        w->context.settings = worker_settings_ref(c->settings);
        LIST_FOREACH (vm, &w->vms, in_worker)
                vm_judge_again(vm);
        worker_settings_unref(old);
        return 0;
}

int worker_set_settings(struct worker *w, struct worker_settings *settings)
{
        struct call c = {.run = run_set_settings, .settings = settings};

        return call(w, &c);
}

static int run_set_share(struct worker *w, struct call *c)
{
        struct vm *vm;

        w->context.share = *c->share;
        w->context.pipes.most = c->share->relay_pipes;
        LIST_FOREACH (vm, &w->vms, in_worker)
                vm_take_share(vm);
        return 0;
}

int worker_set_share(struct worker *w, const struct capacity_share *share)
{
        struct call c = {.run = run_set_share, .share = share};

        return call(w, &c);
}

static int run_vm_add(struct worker *w, struct call *c)
{
        struct vm *vm;

        LIST_FOREACH (vm, &w->vms, in_worker)
                if (!strcmp(vm->name, c->config->name)) {
                        for (size_t i = 0; i < c->config->listeners_n; i++)
                                close_fd(c->config->listeners[i]);
                        if (c->config->service_listener)
                                close_fd(*c->config->service_listener);
                        return -EEXIST;
                }

        int r = vm_new(&w->context, c->config, &vm);
        if (r < 0)
                return r;
        LIST_INSERT_HEAD(&w->vms, vm, in_worker);
        *c->ret_vm = vm;
        return 0;
}

int worker_vm_add(struct worker *w, const struct vm_config *config, struct vm **ret)
{
        struct call c = {.run = run_vm_add, .config = config, .ret_vm = ret};

        return call(w, &c);
}

static bool has_vm(const struct worker *w, const struct vm *wanted)
{
        const struct vm *vm;

        LIST_FOREACH (vm, &w->vms, in_worker)
                if (vm == wanted)
                        return true;
        return false;
}

static int run_vm_remove(struct worker *w, struct call *c)
{
        if (!has_vm(w, c->vm))
                return -ENOENT;
        LIST_REMOVE(c->vm, in_worker);
        vm_free(c->vm);
        return 0;
}

int worker_vm_remove(struct worker *w, struct vm *vm)
{
        struct call c = {.run = run_vm_remove, .vm = vm};

        return call(w, &c);
}

static int run_set_policy(struct worker *w, struct call *c)
{
        return has_vm(w, c->vm) ? vm_set_policy(c->vm, c->policy) : -ENOENT;
}

int worker_vm_set_policy(struct worker *w, struct vm *vm, struct policy *policy)
{
        struct call c = {.run = run_set_policy, .vm = vm, .policy = policy};

        return call(w, &c);
}

static int run_set_ready(struct worker *w, struct call *c)
{
        if (!has_vm(w, c->vm))
                return -ENOENT;
        vm_set_ready(c->vm, c->ready, c->generation, c->ca);
        return 0;
}

int worker_vm_set_ready(struct worker *w, struct vm *vm, bool ready, uint64_t generation, struct ca *ca)
{
        struct call c = {.run = run_set_ready, .vm = vm, .ready = ready, .generation = generation, .ca = ca};

        return call(w, &c);
}

static int run_revoke(struct worker *w, struct call *c)
{
        if (!has_vm(w, c->vm))
                return -ENOENT;
        vm_revoke(c->vm);
        return 0;
}

int worker_vm_revoke(struct worker *w, struct vm *vm)
{
        struct call c = {.run = run_revoke, .vm = vm};

        return call(w, &c);
}

static int run_stats(struct worker *w, struct call *c)
{
        if (!has_vm(w, c->vm))
                return -ENOENT;
        *c->ret_stats = c->vm->stats;
        c->ret_stats->sessions_open = c->vm->sessions_n;
        return 0;
}

int worker_vm_stats(struct worker *w, struct vm *vm, struct vm_stats *ret)
{
        struct call c = {.run = run_stats, .vm = vm, .ret_stats = ret};

        return call(w, &c);
}

static int run_connection(struct worker *w, struct call *c)
{
        if (!has_vm(w, c->vm) || w->context.draining) {
                close_fd(c->fd);
                return -ENOENT;
        }
        if (c->port == WB_PORT_SERVICE)
                vm_accept_service(c->vm, c->fd);
        else
                vm_accept(c->vm, c->fd);
        return 0;
}

int worker_vsock_connection(struct worker *w, struct vm *vm, uint32_t port, int fd)
{
        struct call c = {.run = run_connection, .vm = vm, .fd = fd, .port = port};

        return call(w, &c);
}
