/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"

/* A grant is worth its system call: a packet, or what the rate gives in 20 ms where that is less. */
#define GRANT_LEAST_BYTES 1460u
#define GRANT_LEAST_PER_S 50u

#define SLICES_PER_S     200u
#define SLICE_MOST_BYTES 65536u
#define TURN_ASK_NS      (20 * NSEC_PER_MSEC)
#define TURN_LATE_NS     (250 * NSEC_PER_MSEC)
#define TURN_ASK_EACH_NS (NSEC_PER_MSEC / 10)

static void scope_init(
        struct limits_scope *s, struct limits_scope *parent, const struct policy_limits *most, uint64_t now_ns)
{
        *s = (struct limits_scope){.most = *most};
        for (unsigned i = 0; i < LIMITS_DIRECTIONS_; i++) {
                bucket_init(&s->bytes[i], parent ? &parent->bytes[i] : NULL, most->rate_bps, most->burst_bytes, now_ns);
                TAILQ_INIT(&s->queues[i].waiters);
        }
        bucket_init(
                &s->requests, parent ? &parent->requests : NULL, most->requests_per_s, most->requests_per_s, now_ns);
}

int limits_init(struct limits *l, const struct policy *policy, uint64_t now_ns)
{
        struct limits_scope *rules = calloc(policy->rules_n ? policy->rules_n : 1, sizeof(*rules));

        if (!rules)
                return -ENOMEM;
        *l = (struct limits){.rules = rules, .rules_n = policy->rules_n};
        scope_init(&l->vm, NULL, &policy->limits, now_ns);
        for (size_t i = 0; i < l->rules_n; i++)
                scope_init(&rules[i], &l->vm, &policy->rules[i].limits, now_ns);
        return 0;
}

void limits_done(struct limits *l)
{
        free(l->rules);
        *l = (struct limits){0};
}

/* A bucket that is limited as before keeps its level; else a policy edited in a loop would be a way around it. */
static void carry(struct limits_scope *to, const struct limits_scope *from)
{
        to->quota_used_bytes = from->quota_used_bytes;
        memcpy(to->owed_bytes, from->owed_bytes, sizeof(to->owed_bytes));
        for (unsigned i = 0; i < LIMITS_DIRECTIONS_; i++) {
                if (to->most.rate_bps != from->most.rate_bps || to->most.burst_bytes != from->most.burst_bytes)
                        continue;
                to->bytes[i].level_bytes = from->bytes[i].level_bytes;
                to->bytes[i].residue = from->bytes[i].residue;
                to->bytes[i].updated_ns = from->bytes[i].updated_ns;
        }
        if (to->most.requests_per_s == from->most.requests_per_s) {
                to->requests.level_bytes = from->requests.level_bytes;
                to->requests.residue = from->requests.residue;
                to->requests.updated_ns = from->requests.updated_ns;
        }
}

static bool same_pattern(const struct pattern *a, const struct pattern *b)
{
        if (a->kind != b->kind)
                return false;
        if (a->kind == PATTERN_PREFIX)
                return a->prefix.kind == b->prefix.kind && a->prefix.bits == b->prefix.bits &&
                       !memcmp(a->prefix.address, b->prefix.address, sizeof(a->prefix.address));
        return a->name_n == b->name_n && !memcmp(a->name, b->name, a->name_n);
}

/* The n-th rule with a pattern goes with the n-th of the old ones that have it. */
static const struct limits_scope *counterpart(
        const struct limits *old, const struct policy *old_policy, const struct policy *policy, size_t index)
{
        const struct pattern *pattern = &policy->rules[index].pattern;
        size_t nth = 0;

        for (size_t i = 0; i < index; i++)
                nth += same_pattern(&policy->rules[i].pattern, pattern);
        for (size_t i = 0; i < old_policy->rules_n; i++)
                if (same_pattern(&old_policy->rules[i].pattern, pattern) && !nth--)
                        return &old->rules[i];
        return NULL;
}

int limits_replace(struct limits *l, const struct policy *old, const struct policy *policy, uint64_t now_ns)
{
        struct limits before = *l;

        int r = limits_init(l, policy, now_ns);
        if (r < 0) {
                *l = before;
                return r;
        }
        carry(&l->vm, &before.vm);
        for (size_t i = 0; i < l->rules_n; i++) {
                const struct limits_scope *from = counterpart(&before, old, policy, i);

                if (from)
                        carry(&l->rules[i], from);
        }
        free(before.rules);
        return 0;
}

static struct limits_scope *rule_scope(struct limits *l, int rule)
{
        assert(rule < (int)l->rules_n);
        return rule < 0 ? NULL : &l->rules[rule];
}

static bool quota_is_set(const struct limits_scope *s)
{
        return s->most.quota_set || s->most.quota_bytes;
}

static uint64_t quota_left(const struct limits_scope *s)
{
        if (!s || !quota_is_set(s))
                return UINT64_MAX;
        return s->quota_used_bytes < s->most.quota_bytes ? s->most.quota_bytes - s->quota_used_bytes : 0;
}

static bool is_full(const struct limits_scope *s)
{
        return s && s->most.max_connections && s->connections >= s->most.max_connections;
}

enum reason limits_enter(struct limits *l, int rule)
{
        const struct limits_scope *scope = rule_scope(l, rule);

        if (!quota_left(&l->vm) || !quota_left(scope))
                return REASON_QUOTA_EXCEEDED;
        if (is_full(&l->vm) || is_full(scope))
                return REASON_CONNECTION_LIMIT;
        limits_enter_anyway(l, rule);
        return REASON_ALLOWED;
}

void limits_enter_anyway(struct limits *l, int rule)
{
        struct limits_scope *scope = rule_scope(l, rule);

        l->vm.connections++;
        if (scope)
                scope->connections++;
}

void limits_leave(struct limits *l, int rule)
{
        struct limits_scope *scope = rule_scope(l, rule);

        assert(l->vm.connections && (!scope || scope->connections));
        l->vm.connections--;
        if (scope)
                scope->connections--;
}

enum reason limits_request(struct limits *l, int rule, uint64_t now_ns, uint64_t *ret_wait_ns)
{
        struct limits_scope *scope = rule_scope(l, rule);
        struct bucket *requests = scope ? &scope->requests : &l->vm.requests;

        if (!bucket_peek(requests, 1, now_ns)) {
                *ret_wait_ns = bucket_wait_ns(requests, 1, now_ns);
                return REASON_RATE_LIMITED;
        }
        bucket_draw(requests, 1);
        return REASON_ALLOWED;
}

static uint64_t least_grant(const struct limits_scope *s, uint64_t least)
{
        if (!s || !s->most.rate_bps)
                return least;

        uint64_t slice = s->most.rate_bps / GRANT_LEAST_PER_S;
        return slice < least ? slice : least;
}

/* true: nothing is owed any more. */
static bool pay(struct bucket *bytes, uint64_t *owed_bytes, uint64_t now_ns, uint64_t *ret_wait_ns)
{
        uint64_t paid = bucket_peek(bytes, *owed_bytes, now_ns);

        if (!*owed_bytes)
                return true;
        bucket_draw(bytes, paid);
        *owed_bytes -= paid;
        if (*owed_bytes)
                *ret_wait_ns = bucket_wait_ns(bytes, *owed_bytes, now_ns);
        return !*owed_bytes;
}

static void join(struct limits_queue *q, struct limits_waiter *w)
{
        if (!w || w->queue == q)
                return;
        limits_forget(w);
        TAILQ_INSERT_TAIL(&q->waiters, w, link);
        w->queue = q;
        w->ticket = ++q->tickets;
        q->waiters_n++;
}

void limits_forget(struct limits_waiter *w)
{
        if (!w || !w->queue)
                return;

        struct limits_waiter *first = TAILQ_FIRST(&w->queue->waiters), *next = TAILQ_NEXT(w, link);
        TAILQ_REMOVE(&w->queue->waiters, w, link);
        w->queue->waiters_n--;
        w->queue = NULL;
        if (w == first && next && next->wake)
                next->wake(next->userdata);
}

/* What each who waits gets in its turn: 5 ms of the rate, a packet at least and a pipe at most. */
static uint64_t slice_bytes(const struct limits_scope *s)
{
        uint64_t slice = s->most.rate_bps / SLICES_PER_S;

        if (slice < GRANT_LEAST_BYTES)
                slice = least_grant(s, GRANT_LEAST_BYTES);
        return slice < SLICE_MOST_BYTES ? slice : SLICE_MOST_BYTES;
}

/* Somebody else is before w at this bucket. Who does not come when it is its turn loses it. */
static bool is_behind(struct limits_queue *q, const struct limits_waiter *w, uint64_t now_ns)
{
        struct limits_waiter *first;

        while ((first = TAILQ_FIRST(&q->waiters)) && first != w && now_ns > first->due_ns + TURN_LATE_NS)
                limits_forget(first);
        return w && first && first != w;
}

/* When it may be w's turn. Those before it may leave, so it asks again before long; the more wait, the less often. */
static uint64_t turn_ns(const struct limits_scope *s, const struct limits_queue *q, const struct limits_waiter *w)
{
        uint64_t slice_ns = slice_bytes(s) * NSEC_PER_SEC / (s->most.rate_bps ? s->most.rate_bps : 1);
        uint64_t due_ns = (w->ticket - TAILQ_FIRST(&q->waiters)->ticket) * slice_ns;
        uint64_t most_ns = TURN_ASK_NS + q->waiters_n * TURN_ASK_EACH_NS;

        return due_ns < most_ns ? due_ns : most_ns;
}

/* The scope at which w has to wait behind others, or NULL. */
static struct limits_scope *busy_scope(struct limits *l, struct limits_scope *rule, enum limits_direction direction,
        const struct limits_waiter *w, uint64_t now_ns)
{
        if (rule && is_behind(&rule->queues[direction], w, now_ns))
                return rule;
        return is_behind(&l->vm.queues[direction], w, now_ns) ? &l->vm : NULL;
}

/* The bucket that has too little, for long: there w queues. */
static void queue_at(struct limits *l, struct limits_scope *rule, enum limits_direction direction,
        struct limits_waiter *w, uint64_t least, uint64_t now_ns)
{
        struct bucket *vm = &l->vm.bytes[direction];
        bool at_vm = !rule || !rule->most.rate_bps ||
                     bucket_wait_ns(vm, least, now_ns) >= bucket_wait_ns(&rule->bytes[direction], least, now_ns);

        join(at_vm ? &l->vm.queues[direction] : &rule->queues[direction], w);
}

/* The least that a grant is worth, and the most where others wait for the same bucket. */
static uint64_t bound_grant(const struct limits *l, const struct limits_scope *scope, enum limits_direction direction,
        const struct limits_waiter *w, uint64_t *want)
{
        uint64_t least = least_grant(scope, least_grant(&l->vm, GRANT_LEAST_BYTES));
        const struct limits_scope *scopes[] = {scope, &l->vm};

        for (unsigned i = 0; w && i < 2; i++) {
                const struct limits_queue *q = scopes[i] ? &scopes[i]->queues[direction] : NULL;

                if (q && q->waiters_n > (w->queue == q) && slice_bytes(scopes[i]) < *want)
                        least = *want = slice_bytes(scopes[i]);
        }
        if (least > *want)
                least = *want;
        return least ? least : 1;
}

static int grant(struct limits *l, int rule, enum limits_direction direction, struct limits_waiter *w,
        size_t want_bytes, uint64_t now_ns, size_t *ret_bytes, uint64_t *ret_wait_ns)
{
        struct limits_scope *scope = rule_scope(l, rule), *busy = busy_scope(l, scope, direction, w, now_ns);
        struct bucket *bytes = scope ? &scope->bytes[direction] : &l->vm.bytes[direction];
        uint64_t left = quota_left(scope) < quota_left(&l->vm) ? quota_left(scope) : quota_left(&l->vm);
        uint64_t want = want_bytes < left ? want_bytes : left;

        if (!left)
                return LIMITS_E_QUOTA;
        if (!pay(bytes, &(scope ? scope : &l->vm)->owed_bytes[direction], now_ns, ret_wait_ns))
                return LIMITS_E_WAIT;
        if (busy) {
                join(&busy->queues[direction], w);
                *ret_wait_ns = turn_ns(busy, &busy->queues[direction], w);
                return LIMITS_E_WAIT;
        }

        uint64_t least = bound_grant(l, scope, direction, w, &want);
        uint64_t granted = bucket_peek(bytes, want, now_ns);
        uint64_t wait_ns = granted < least ? bucket_wait_ns(bytes, least, now_ns) : 0;
        if (wait_ns || !granted) {
                queue_at(l, scope, direction, w, least, now_ns);
                *ret_wait_ns = wait_ns;
                return LIMITS_E_WAIT;
        }
        limits_forget(w);
        *ret_bytes = (size_t)granted;
        return 0;
}

int limits_grant(struct limits *l, int rule, enum limits_direction direction, struct limits_waiter *w,
        size_t want_bytes, uint64_t now_ns, size_t *ret_bytes, uint64_t *ret_wait_ns)
{
        int r = grant(l, rule, direction, w, want_bytes, now_ns, ret_bytes, ret_wait_ns);

        if (r == LIMITS_E_WAIT && w)
                w->due_ns = now_ns + *ret_wait_ns;
        return r;
}

static void use_quota(struct limits *l, struct limits_scope *scope, size_t bytes)
{
        l->vm.quota_used_bytes += bytes;
        if (scope)
                scope->quota_used_bytes += bytes;
}

void limits_spend(struct limits *l, int rule, enum limits_direction direction, size_t bytes)
{
        struct limits_scope *scope = rule_scope(l, rule);

        bucket_draw(scope ? &scope->bytes[direction] : &l->vm.bytes[direction], bytes);
        use_quota(l, scope, bytes);
}

void limits_owe(struct limits *l, int rule, enum limits_direction direction, size_t bytes)
{
        struct limits_scope *scope = rule_scope(l, rule);

        (scope ? scope : &l->vm)->owed_bytes[direction] += bytes;
        use_quota(l, scope, bytes);
}
