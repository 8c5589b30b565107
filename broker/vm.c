/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/vm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "broker/listener.h"
#include "broker/reply.h"
#include "broker/service.h"
#include "broker/session.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

#define WARN_EVERY_NS (10 * NSEC_PER_SEC)

static void accept_egress(void *userdata, int fd)
{
        vm_accept(userdata, fd);
}

static void accept_service(void *userdata, int fd)
{
        vm_accept_service(userdata, fd);
}

static void on_starved(void *userdata)
{
        vm_warn(userdata, "no descriptor or memory to accept its connections");
}

static int listen_at(struct vm *vm, int *fd, void (*accept)(void *userdata, int fd), struct listener **ret)
{
        const struct listener_calls calls = {.accept = accept, .starved = on_starved};
        int r = listener_new(vm->context->base, *fd, &calls, vm, ret);

        if (r == 0)
                *fd = -1;
        return r;
}

static int open_listeners(struct vm *vm, const struct vm_config *config)
{
        vm->listeners = calloc(config->listeners_n ? config->listeners_n : 1, sizeof(struct listener *));
        if (!vm->listeners)
                return -ENOMEM;
        for (size_t i = 0; i < config->listeners_n; i++) {
                int r = listen_at(vm, &config->listeners[i], accept_egress, &vm->listeners[i]);
                if (r < 0)
                        return r;
                vm->listeners_n++;
        }
        return config->service_listener ? listen_at(vm, config->service_listener, accept_service, &vm->service_listener)
                                        : 0;
}

static void close_listeners(struct vm *vm)
{
        for (size_t i = 0; i < vm->listeners_n; i++)
                listener_free(vm->listeners[i]);
        vm->listeners_n = 0;
        listener_free(vm->service_listener);
        vm->service_listener = NULL;
        free(vm->listeners);
        vm->listeners = NULL;
}

DEFINE_CLEANUP(struct vm *, vm_free);

/* So that no guest knows which names the budget takes for one. */
static uint64_t draw_seed(void)
{
        uint64_t seed = 0;

        return getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed) ? seed : clock_monotonic_ns();
}

static int vm_build(struct worker_context *context, const struct vm_config *config, struct vm **ret)
{
        _cleanup_(vm_freep) struct vm *vm = calloc(1, sizeof(*vm));
        int r;

        if (!vm)
                return -ENOMEM;
        LIST_INIT(&vm->sessions);
        LIST_INIT(&vm->services);
        vm->context = context;
        vm->budget.most_bytes = context->share.bytes;
        vm->ready = config->ready;
        vm->policy = policy_ref(config->policy);
        vm->ca = ca_ref(config->ca);
        vm->name = strdup(config->name);
        if (!vm->name)
                return -ENOMEM;
        bucket_init(&vm->handshakes, NULL, INSPECT_HANDSHAKES_PER_S, INSPECT_HANDSHAKES_BURST, clock_monotonic_ns());
        name_budget_init(&vm->names, NAME_BUDGET_QUERIES, NAME_BUDGET_NAMES, draw_seed(), clock_monotonic_ns());
        name_budget_init(
                &vm->lookups, NAME_BUDGET_LOOKUPS, NAME_BUDGET_LOOKUP_NAMES, draw_seed(), clock_monotonic_ns());
        r = limits_init(&vm->limits, vm->policy, clock_monotonic_ns());
        if (r < 0)
                return r;
        r = open_listeners(vm, config);
        if (r < 0)
                return r;
        *ret = STEAL(vm);
        return 0;
}

int vm_new(struct worker_context *context, const struct vm_config *config, struct vm **ret)
{
        int r = vm_build(context, config, ret);

        for (size_t i = 0; r < 0 && i < config->listeners_n; i++)
                config->listeners[i] = close_fd(config->listeners[i]);
        if (r < 0 && config->service_listener)
                *config->service_listener = close_fd(*config->service_listener);
        return r;
}

/* The first may take itself out of the list, but no other: a session ends by itself alone. */
static void for_each_session(struct vm *vm, void (*call)(struct session *s))
{
        struct session *next;

        for (struct session *s = LIST_FIRST(&vm->sessions); s; s = next) {
                next = session_next(s);
                call(s);
        }
}

static void cut_removed(struct session *s)
{
        session_cut(s, REASON_ALLOWED);
}

static void cut_revoked(struct session *s)
{
        session_cut(s, REASON_REVOKED);
}

static void cut_not_ready(struct session *s)
{
        session_cut(s, REASON_NOT_READY);
}

void vm_free(struct vm *vm)
{
        if (!vm)
                return;
        close_listeners(vm);
        for_each_session(vm, cut_removed);
        while (!LIST_EMPTY(&vm->services))
                service_free(LIST_FIRST(&vm->services));
        limits_done(&vm->limits);
        inspect_unref(vm->inspect);
        ca_unref(vm->ca);
        policy_unref(vm->policy);
        free(vm->name);
        free(vm);
}

enum reason vm_gate(const struct vm *vm)
{
        if (vm->revoked)
                return REASON_REVOKED;
        return vm->ready ? REASON_ALLOWED : REASON_NOT_READY;
}

/*
 * Every connection leaves its rule of the old policy and, if it passes, enters that of the new one: the counts are
 * right at each step and nothing is admitted in between.
 */
int vm_set_policy(struct vm *vm, struct policy *policy)
{
        struct policy *old = vm->policy;

        for_each_session(vm, session_leave_limits);
        int r = limits_replace(&vm->limits, old, policy, clock_monotonic_ns());
        if (r == 0)
                vm->policy = policy_ref(policy);
        for_each_session(vm, session_judge_again);
        if (r == 0)
                policy_unref(old);
        return r;
}

void vm_judge_again(struct vm *vm)
{
        for_each_session(vm, session_leave_limits);
        for_each_session(vm, session_judge_again);
}

void vm_set_ready(struct vm *vm, bool ready, uint64_t generation, struct ca *ca)
{
        struct ca *old = vm->ca;

        vm->ready = ready;
        vm->generation = generation;
        vm->ca = ca_ref(ca);
        ca_unref(old);
        if (!ready)
                for_each_session(vm, cut_not_ready);
}

void vm_revoke(struct vm *vm)
{
        vm->revoked = true;
        for_each_session(vm, cut_revoked);
}

void vm_drain(struct vm *vm)
{
        close_listeners(vm);
        for_each_session(vm, session_drain);
}

void vm_take_share(struct vm *vm)
{
        const struct capacity_share *share = &vm->context->share;
        struct session *next;

        vm->budget.most_bytes = share->bytes;
        if (vm->sessions_n > share->sessions)
                vm_warn(vm, "has more connections than are left for one VM; the latest are cut");
        for (struct session *s = LIST_FIRST(&vm->sessions); s && vm->sessions_n > share->sessions; s = next) {
                next = session_next(s);
                session_cut(s, REASON_CONNECTION_LIMIT);
        }
}

void vm_warn(struct vm *vm, const char *text)
{
        uint64_t now_ns = clock_monotonic_ns();

        if (vm->warned_ns && now_ns - vm->warned_ns < WARN_EVERY_NS)
                return;
        vm->warned_ns = now_ns;
        log_warning("vm %s: %s", vm->name, text);
}

/* The client has not said what it speaks; most speak HTTP, and whoever does not sees a close. */
static void turn_away(struct vm *vm, int fd)
{
        struct budget budget = {.most_bytes = 4096};
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_EGRESS_DENY);
        struct buffer out;

        buffer_init(&out, &budget);
        if (!reply_problem(&out, &(struct reply_problem){.reason = REASON_CONNECTION_LIMIT, .close = true}))
                (void)send(fd, buffer_data(&out), buffer_used(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
        buffer_done(&out);
        close_fd(fd);

        record.vm = vm->name;
        record.generation = vm->generation;
        record.has_decision = true;
        record.reason = REASON_CONNECTION_LIMIT;
        record.policy_sha256 = vm->policy->sha256;
        record.detail = "more connections than one VM may have, whatever its policy";
        (void)audit_submit(vm->context->audit, &record, NULL, NULL);
        vm->stats.denied_total++;
}

void vm_accept(struct vm *vm, int fd)
{
        if (vm->sessions_n >= vm->context->share.sessions) {
                turn_away(vm, fd);
                return;
        }

        if (session_new(vm, fd) < 0)
                vm_warn(vm, "its connections hold as much memory as they may, one is not taken");
}

void vm_accept_service(struct vm *vm, int fd)
{
        int r;

        if (vm->services_n >= SERVICES_MAX) {
                close_fd(fd);
                return;
        }
        r = service_new(vm, fd);
        if (r < 0)
                log_write_errno(LOG_LEVEL_WARNING, r, "vm %s: cannot take a connection", vm->name);
}

bool vm_may_inspect(const struct vm *vm)
{
        return vm->ca && vm->context->settings->trust;
}

/* The first that wants a CA and a trust has its worker parse a bundle: ten milliseconds, once. */
int vm_inspect(struct vm *vm, struct inspect **ret)
{
        struct inspect_trust *trust = vm->context->settings->trust;

        if (!vm->inspect || !inspect_is_of(vm->inspect, vm->ca, trust)) {
                struct inspect *found;
                int r = inspect_get(&vm->context->inspects, vm->ca, trust, &found);

                if (r < 0)
                        return r;
                inspect_unref(vm->inspect);
                vm->inspect = found;
        }
        *ret = vm->inspect;
        return 0;
}

const struct worker_service *vm_find_service(const struct vm *vm, const struct hostname *host, uint16_t port)
{
        const struct worker_settings *settings = vm->context->settings;

        if (host->kind != HOST_NAME)
                return NULL;
        for (size_t i = 0; i < settings->services_n; i++) {
                const struct worker_service *service = &settings->services[i];

                if (strcmp(service->name, host->text) != 0)
                        continue;
                if (port == 0)
                        return service;
                for (size_t k = 0; k < service->ports_n; k++)
                        if (service->ports[k] == port)
                                return service;
        }
        return NULL;
}
