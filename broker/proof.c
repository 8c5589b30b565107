/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/proof.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/* VMs that are added together are not all looked at in the same moment from then on. */
#define SPREAD 16u

static const char no_pid[] = "no pid was given, so nothing is verified";

/* ---- evidence */

static bool has_ended(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

/*
 * The first look pins the process; each later one is of that one too: it lived still when the evidence was there, so
 * nobody else had its number.
 */
static int gather(struct vm_entry *e)
{
        _cleanup_close_ int pidfd = -1;
        struct evidence evidence;
        int r = monitor_ask_evidence(e->registry->monitor, (int)e->config.pid, &evidence, &pidfd);

        if (r < 0)
                return r;
        if (!evidence.exists || (e->pidfd >= 0 && has_ended(e->pidfd)))
                return -ESRCH;
        if (e->pidfd < 0)
                e->pidfd = steal_fd(&pidfd);
        e->evidence = evidence;
        return 0;
}

/* The other VMs that have a process. At the add e itself stands in no list, and all others were there before it. */
static size_t list_neighbours(const struct vm_entry *e, struct neighbour *ret)
{
        const struct vm_entry *other;
        bool earlier = true;
        size_t n = 0;

        TAILQ_FOREACH (other, &e->registry->vms, link) {
                if (other == e)
                        earlier = false;
                else if (other->evidence.exists)
                        ret[n++] = (struct neighbour){other->config.name, &other->evidence, earlier};
        }
        return n;
}

static int find_layers(const struct vm_entry *e, struct layers *ret)
{
        const struct wall_rules *rules = e->registry->rules;
        _cleanup_free_ struct neighbour *neighbours = calloc(e->registry->vms_n + 1, sizeof(*neighbours));

        if (!neighbours)
                return -ENOMEM;
        if (!e->config.pid) {
                layers_without_evidence(no_pid, ret);
                return 0;
        }
        layers_find(&(struct layer_question){.backend = (enum backend)e->config.backend,
                            .evidence = &e->evidence,
                            .broker_uid = geteuid(),
                            .programs = rules->programs,
                            .programs_n = rules->programs_n,
                            .neighbours = neighbours,
                            .neighbours_n = list_neighbours(e, neighbours)},
                ret);
        return 0;
}

/* ---- verdicts */

static struct wall_question question(const struct vm_entry *e, const struct layers *layers, const struct policy *policy)
{
        return (struct wall_question){.backend = (enum backend)e->config.backend,
                .layers = layers,
                .rules = e->registry->rules,
                .policy = policy};
}

void proof_judge(const struct vm_entry *e, const struct policy *policy, struct wall *ret)
{
        const struct wall_question q = question(e, &e->layers, policy);

        wall_decide(&q, ret);
}

void proof_print(const struct vm_entry *e, const char *before, const char *what, char ret_text[PROOF_TEXT_BYTES])
{
        size_t n = (size_t)snprintf(ret_text, PROOF_TEXT_BYTES, "%s%s", before, what);
        char set[160];

        for (int state = 0; state < LAYER_STATE_MAX_ && e->evidence.exists && n < PROOF_TEXT_BYTES; state++) {
                layer_set_print(layers_in(&e->layers, (enum layer_state)state), set, sizeof(set));
                n += (size_t)snprintf(
                        ret_text + n, PROOF_TEXT_BYTES - n, "; %s: %s", layer_state_name((enum layer_state)state), set);
        }
}

static int refuse(struct refusal *to, int error, enum reason reason, const char *message)
{
        to->reason = reason;
        (void)snprintf(to->message, sizeof(to->message), "%s", message);
        return error;
}

/* Where the process could not be looked at. */
static int refuse_process(const struct vm_entry *e, struct refusal *to, int error)
{
        char text[128];

        if (error == -ESRCH)
                (void)snprintf(text, sizeof(text), "there is no process %llu", (unsigned long long)e->config.pid);
        else
                (void)snprintf(text, sizeof(text), "cannot look at process %llu: %s", (unsigned long long)e->config.pid,
                        strerrordesc_np(-error));
        return refuse(to, error, REASON_ISOLATION_UNKNOWN, text);
}

/* Once per backend per process of what is not proven. */
static void warn(const struct vm_entry *e)
{
        enum backend backend = (enum backend)e->config.backend;
        bool *warned = &e->registry->warned[backend];

        if (e->wall.verified || *warned)
                return;
        if (backend_declares(backend) == TIER_UNKNOWN)
                log_warning("backend %s declares no isolation: its tier is unknown, which satisfies no policy",
                        backend_name(backend));
        else if (e->wall.tier != TIER_UNKNOWN)
                log_warning("backend %s: tier %s is believed as declared (isolation.trust_declared), unverified",
                        backend_name(backend), isolation_tier_name(e->wall.tier));
        else
                return;
        *warned = true;
}

int proof_first(struct vm_entry *e, struct refusal *ret_refusal)
{
        int r = e->config.pid ? gather(e) : 0;

        if (r == 0)
                r = find_layers(e, &e->layers);
        e->checked_ns = clock_realtime_ns();
        if (r < 0)
                return refuse_process(e, ret_refusal, r);
        proof_judge(e, e->policy, &e->wall);
        warn(e);
        return e->wall.reason == REASON_ALLOWED ? 0 : refuse(ret_refusal, -EPERM, e->wall.reason, e->wall.message);
}

static int cut_off(struct vm_entry *e, struct refusal *ret_refusal)
{
        char text[PROOF_TEXT_BYTES];

        proof_print(e, "isolation re-checked: ", e->wall.message, text);
        registry_cut(e, e->wall.reason, text);
        return refuse(ret_refusal, -EPERM, e->wall.reason, e->wall.message);
}

/* What cannot be looked at any more is not proven any more. */
static int cut_off_unseen(struct vm_entry *e, int error, struct refusal *ret_refusal)
{
        (void)refuse_process(e, ret_refusal, error);
        e->wall = (struct wall){.tier = TIER_UNKNOWN, .reason = REASON_ISOLATION_UNKNOWN};
        (void)snprintf(e->wall.message, sizeof(e->wall.message), "%s", ret_refusal->message);
        layers_without_evidence(ret_refusal->message, &e->layers);
        registry_cut(e, e->wall.reason, ret_refusal->message);
        return error;
}

int proof_again(struct vm_entry *e, struct refusal *ret_refusal)
{
        const struct wall_question q = question(e, &e->layers, e->policy);
        const struct layers before = e->layers;
        int r;

        if (e->state == VM_REVOKED)
                return 0;
        r = e->config.pid ? gather(e) : 0;
        /* Its end is seen by itself, and the VM goes then. */
        if (r == -ESRCH && has_ended(e->pidfd))
                return refuse_process(e, ret_refusal, r);
        if (r == 0)
                r = find_layers(e, &e->layers);
        e->checked_ns = clock_realtime_ns();
        if (r < 0)
                return cut_off_unseen(e, r, ret_refusal);
        wall_decide_again(&q, &before, e->wall.verified, &e->wall);
        warn(e);
        return e->wall.reason == REASON_ALLOWED ? 0 : cut_off(e, ret_refusal);
}

void proof_all_again(struct registry *r)
{
        struct refusal refusal;
        struct vm_entry *e;

        TAILQ_FOREACH (e, &r->vms, link)
                (void)proof_again(e, &refusal);
}

/* ---- what comes at run time */

static void on_process_end(evutil_socket_t fd, short events, void *userdata)
{
        struct vm_entry *e = userdata;

        (void)fd;
        (void)events;
        log_info("VM '%s': its process %llu ended", e->config.name, (unsigned long long)e->config.pid);
        registry_remove(e->registry, e, "its process ended");
}

static int arm(struct vm_entry *e, uint64_t parts)
{
        uint64_t us = e->registry->rules->recheck_s * 1000000 / SPREAD * parts;
        const struct timeval after = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};

        return event_add(e->recheck_event, &after) == 0 ? 0 : -ENOMEM;
}

static void on_recheck(evutil_socket_t fd, short events, void *userdata)
{
        struct vm_entry *e = userdata;
        char text[PROOF_TEXT_BYTES];
        struct refusal refusal;

        (void)fd;
        (void)events;
        if (e->state == VM_REVOKED)
                return;
        if (proof_again(e, &refusal) == 0) {
                proof_print(e, "isolation re-checked: ", e->wall.message, text);
                (void)registry_record(e, AUDIT_VM_ADD, REASON_ALLOWED, text);
        }
        (void)arm(e, SPREAD);
}

int proof_watch(struct vm_entry *e)
{
        if (e->pidfd < 0)
                return 0;
        e->pid_event = event_new(e->registry->base, e->pidfd, EV_READ, on_process_end, e);
        e->recheck_event = event_new(e->registry->base, -1, 0, on_recheck, e);
        if (!e->pid_event || !e->recheck_event || event_add(e->pid_event, NULL) < 0)
                return -ENOMEM;
        return arm(e, SPREAD / 2 + 1 + e->registry->vms_n % (SPREAD / 2));
}

void proof_done(struct vm_entry *e)
{
        if (e->pid_event)
                event_free(e->pid_event);
        if (e->recheck_event)
                event_free(e->recheck_event);
        e->pidfd = close_fd(e->pidfd);
}
