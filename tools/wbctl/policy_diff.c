/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_diff.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "broker/isolation.h"
#include "proto/base/cleanup.h"

#define PATHS_TOLD_MOST 16u /* one by one, of a host, port and method */

#define SAME (-1)

struct comparison {
        const struct policy *a, *b;
        struct policy_diff *out;
        size_t differences_room;
        void *pairs; /* tsearch() of struct policy_limit_change: rules of a and b that decide about the same */
        size_t pairs_n;
};

/* What is found in one cell: for each protocol, method and path a change, or SAME. */
struct matrix {
        const struct witness_cell *cell;
        int *changes;
        bool intercepted; /* by one of them, where TLS is allowed */
        size_t first;     /* of the cell's differences in the list */
};

static int *change_at(const struct matrix *m, int protocol, size_t method, size_t path)
{
        return &m->changes[((size_t)protocol * m->cell->methods_n + method) * m->cell->paths_n + path];
}

/* ---- limits */

bool policy_limits_equal(const struct policy_limits *a, const struct policy_limits *b)
{
        return a->rate_bps == b->rate_bps && a->burst_bytes == b->burst_bytes && a->quota_bytes == b->quota_bytes &&
               (a->quota_set || a->quota_bytes) == (b->quota_set || b->quota_bytes) &&
               a->max_connections == b->max_connections && a->requests_per_s == b->requests_per_s;
}

bool policy_limits_any(const struct policy_limits *l)
{
        static const struct policy_limits none;

        return !policy_limits_equal(l, &none);
}

static int compare_pairs(const void *left, const void *right)
{
        const struct policy_limit_change *a = left, *b = right;

        return a->a_rule != b->a_rule ? a->a_rule - b->a_rule : a->b_rule - b->b_rule;
}

static int add_pair(struct comparison *c, const struct request *request, int a_rule, int b_rule)
{
        struct policy_limit_change key = {.a_rule = a_rule, .b_rule = b_rule}, *pair;

        if (tfind(&key, &c->pairs, compare_pairs))
                return 0;
        pair = malloc(sizeof(*pair));
        if (!pair)
                return -ENOMEM;
        *pair = (struct policy_limit_change){
                .a_rule = a_rule, .b_rule = b_rule, .host = request->host, .port = request->port};
        if (!tsearch(pair, &c->pairs, compare_pairs)) {
                free(pair);
                return -ENOMEM;
        }
        c->pairs_n++;
        return 0;
}

/* ---- one cell */

static int change_of(const struct decision *a, const struct decision *b)
{
        bool a_allows = a->reason == REASON_ALLOWED, b_allows = b->reason == REASON_ALLOWED;

        if (a_allows != b_allows)
                return b_allows ? CHANGE_ALLOWS : CHANGE_DENIES;
        if (a->inspect != b->inspect)
                return b->inspect ? CHANGE_INTERCEPTS : CHANGE_PASSES;
        return SAME;
}

/* *ret_any: does anything differ? */
static int fill_matrix(struct comparison *c, struct matrix *m, bool *ret_any)
{
        const struct witness_cell *cell = m->cell;
        bool any = false;

        for (int p = 0; p < (cell->is_dns ? 1 : PROTOCOL_MAX_); p++)
                for (size_t i = 0; i < cell->methods_n; i++)
                        for (size_t k = 0; k < cell->paths_n; k++) {
                                struct request request;
                                struct decision a, b;
                                int change;

                                witness_request(cell, (enum protocol)p, cell->methods[i], cell->paths[k], &request);
                                witness_decide(cell, 0, &request, &a);
                                witness_decide(cell, 1, &request, &b);
                                change = change_of(&a, &b);
                                *change_at(m, p, i, k) = change;
                                any = any || change != SAME;
                                m->intercepted = m->intercepted || a.inspect || b.inspect;
                                if (a.reason == REASON_ALLOWED && b.reason == REASON_ALLOWED && !cell->is_dns &&
                                        add_pair(c, &request, a.rule, b.rule) < 0)
                                        return -ENOMEM;
                        }
        *ret_any = any;
        return 0;
}

/* What a difference is about, beside its cell. */
struct about {
        enum policy_change change;
        enum protocol protocol;
        const char *method, *path, *pattern;
        bool every_method;
};

static bool same_text(const char *a, const char *b)
{
        return a && b ? strcmp(a, b) == 0 : a == b;
}

static struct policy_difference *grow(struct comparison *c)
{
        if (c->out->differences_n == c->differences_room) {
                size_t room = c->differences_room ? 2 * c->differences_room : 32;
                struct policy_difference *list = realloc(c->out->differences, room * sizeof(*list));

                if (!list)
                        return NULL;
                c->out->differences = list;
                c->differences_room = room;
        }
        return memset(&c->out->differences[c->out->differences_n], 0, sizeof(struct policy_difference));
}

static int compare_ports(const void *a, const void *b)
{
        return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

static int copy_text(const char *text, char **ret)
{
        *ret = text ? strdup(text) : NULL;
        return text && !*ret ? -ENOMEM : 0;
}

static int fill_difference(struct policy_difference *d, const struct matrix *m, const struct about *about)
{
        const struct witness_cell *cell = m->cell;

        d->change = about->change;
        d->has_pattern = cell->pattern != NULL;
        if (cell->pattern)
                d->pattern = *cell->pattern;
        d->in_floor = cell->in_floor;
        d->is_dns = cell->is_dns;
        d->any_port = cell->any_port;
        d->host = cell->host;
        d->protocols = PROTOCOL_BIT(about->protocol);
        d->unseen = about->protocol == PROTOCOL_TLS && (about->method || about->path) && !m->intercepted;
        d->every_method = about->every_method;
        d->any_method = about->method && about->method == cell->methods[1];
        d->ports_n = cell->ports_n;
        d->ports = calloc(cell->ports_n, sizeof(*d->ports));
        if (!d->ports || copy_text(about->method, &d->method) < 0 || copy_text(about->path, &d->path) < 0 ||
                copy_text(about->pattern, &d->path_pattern) < 0)
                return -ENOMEM;
        memcpy(d->ports, cell->ports, cell->ports_n * sizeof(*d->ports));
        qsort(d->ports, d->ports_n, sizeof(*d->ports), compare_ports);
        return 0;
}

/* The same of another protocol is one difference of both. */
static int tell(struct comparison *c, struct matrix *m, const struct about *about)
{
        struct policy_difference *d;

        for (size_t i = m->first; i < c->out->differences_n; i++) {
                d = &c->out->differences[i];
                if (d->change == about->change && d->every_method == about->every_method &&
                        same_text(d->method, about->method) && same_text(d->path, about->path) &&
                        same_text(d->path_pattern, about->pattern)) {
                        d->protocols |= PROTOCOL_BIT(about->protocol);
                        return 0;
                }
        }
        d = grow(c);
        if (!d)
                return -ENOMEM;
        c->out->differences_n++; /* also where it is not whole: what it has is freed with the list */
        return fill_difference(d, m, about);
}

/* The change that all have, or MIXED. No method and no path, as it is before they are known, count too. */
#define MIXED (-2)
static int change_of_method(const struct matrix *m, int protocol, size_t method)
{
        int change = *change_at(m, protocol, method, 0);

        for (size_t k = 1; k < m->cell->paths_n; k++)
                if (*change_at(m, protocol, method, k) != change)
                        return MIXED;
        return change;
}

static int change_of_protocol(const struct matrix *m, int protocol)
{
        int change = change_of_method(m, protocol, 0);

        for (size_t i = 1; i < m->cell->methods_n; i++)
                if (change_of_method(m, protocol, i) != change)
                        return MIXED;
        return change;
}

/* Is what is changed the same, whatever the method? */
static bool methods_are_alike(const struct matrix *m, int protocol)
{
        for (size_t i = 2; i < m->cell->methods_n; i++)
                if (memcmp(change_at(m, protocol, 1, 0), change_at(m, protocol, i, 0),
                            m->cell->paths_n * sizeof(int)) != 0)
                        return false;
        return true;
}

/* What a person hardly thinks of, so that it goes without saying where the change is that of another path. */
static bool is_odd(const char *path)
{
        return path[0] == '*' || request_path_is_ambiguous(path) || request_path_has_encoded_slash(path);
}

/* Have all paths of this pattern (that are witnesses) one change? Then one line tells of all. */
static int change_of_pattern(const struct matrix *m, const int *row, const char *pattern, size_t *ret_path)
{
        int change = SAME;
        bool any = false;

        for (size_t k = 1; k < m->cell->paths_n; k++) {
                if (!policy_path_matches(pattern, m->cell->paths[k]) || request_path_is_ambiguous(m->cell->paths[k]) ||
                        request_path_has_encoded_slash(m->cell->paths[k]))
                        continue;
                if (any && row[k] != change)
                        return MIXED;
                change = row[k];
                *ret_path = k;
                any = true;
        }
        return change;
}

/* Patterns whose paths changed together are told as such; `told` marks the paths that are done with. */
static int tell_patterns(
        struct comparison *c, struct matrix *m, const struct about *template, const int *row, bool *told)
{
        for (int part = 0; part < 2; part++)
                for (size_t i = 0; i < m->cell->parts[part].rules_n; i++) {
                        const struct policy_rule *rule = &m->cell->parts[part].rules[i];

                        for (size_t j = 0; j < rule->paths_n; j++) {
                                struct about about = *template;
                                size_t path = 0;
                                int change = change_of_pattern(m, row, rule->paths[j], &path);

                                if (change == SAME || change == MIXED || told[path])
                                        continue;
                                about.change = (enum policy_change)change;
                                about.path = m->cell->paths[path];
                                about.pattern = rule->paths[j];
                                if (tell(c, m, &about) < 0)
                                        return -ENOMEM;
                                for (size_t k = 1; k < m->cell->paths_n; k++)
                                        told[k] = told[k] || policy_path_matches(rule->paths[j], m->cell->paths[k]);
                        }
                }
        return 0;
}

static int tell_paths(struct comparison *c, struct matrix *m, const struct about *template, const int *row)
{
        _cleanup_free_ bool *told = calloc(m->cell->paths_n + 1, sizeof(*told)); /* never of no size at all */
        bool plain[CHANGE_MAX_] = {false};
        size_t n = 0;
        int r = told ? tell_patterns(c, m, template, row, told) : -ENOMEM;

        for (size_t k = 1; k < m->cell->paths_n; k++)
                if (row[k] != SAME && !is_odd(m->cell->paths[k]))
                        plain[row[k]] = true;

        for (size_t k = 1; k < m->cell->paths_n && r == 0; k++) {
                struct about about = *template;

                if (row[k] == SAME || told[k] || (is_odd(m->cell->paths[k]) && plain[row[k]]))
                        continue;
                if (n++ >= PATHS_TOLD_MOST) {
                        c->out->left_out++;
                        continue;
                }
                about.change = (enum policy_change)row[k];
                about.path = m->cell->paths[k];
                r = tell(c, m, &about);
        }
        return r;
}

static bool all_paths_are_alike(const struct matrix *m, const int *row)
{
        for (size_t k = 2; k < m->cell->paths_n; k++)
                if (row[k] != row[1])
                        return false;
        return m->cell->paths_n > 1 && row[1] != SAME;
}

static int tell_method(struct comparison *c, struct matrix *m, enum protocol protocol, size_t method, bool every_method)
{
        int change = change_of_method(m, protocol, method);
        const int *row = change_at(m, protocol, method, 0);
        struct about about = {.protocol = protocol, .method = m->cell->methods[method], .every_method = every_method};

        if (change == SAME)
                return 0;
        if (change == MIXED && all_paths_are_alike(m, row)) {
                /* Only where no path is known yet it is otherwise. */
                change = row[1];
                about.path = m->cell->paths[1];
                about.pattern = "/*";
        }
        if (change == MIXED)
                return tell_paths(c, m, &about, row);
        about.change = (enum policy_change)change;
        return tell(c, m, &about);
}

static int tell_protocol(struct comparison *c, struct matrix *m, enum protocol protocol)
{
        /* Without interception or plain HTTP there is no method and no path. */
        bool is_opaque = protocol == PROTOCOL_TCP || protocol == PROTOCOL_AUTO;
        int change = is_opaque ? *change_at(m, protocol, 0, 0) : change_of_protocol(m, protocol);
        int r = 0;

        if (change == SAME)
                return 0;
        if (change != MIXED)
                return tell(c, m, &(struct about){.change = (enum policy_change)change, .protocol = protocol});
        if (methods_are_alike(m, protocol))
                return tell_method(c, m, protocol, 1, true);
        for (size_t i = 1; i < m->cell->methods_n && r == 0; i++)
                r = tell_method(c, m, protocol, i, false);
        return r;
}

/* What is left when nothing was told by a protocol that a person knows: what was asked before one was known. */
static int tell_first_left(struct comparison *c, struct matrix *m)
{
        for (int p = 0; p < PROTOCOL_MAX_; p++)
                for (size_t i = 0; i < m->cell->methods_n; i++)
                        for (size_t k = 0; k < m->cell->paths_n; k++) {
                                int change = *change_at(m, p, i, k);

                                if (change != SAME)
                                        return tell(c, m,
                                                &(struct about){.change = (enum policy_change)change,
                                                        .protocol = (enum protocol)p,
                                                        .method = m->cell->methods[i],
                                                        .path = m->cell->paths[k]});
                        }
        return 0;
}

/* A DNS question follows from the ports: it is told only where none of them was. */
static bool dns_is_told(const struct comparison *c, const struct witness_cell *cell)
{
        size_t n = c->out->differences_n;

        return cell->is_dns && n > 0 && strcmp(c->out->differences[n - 1].host.text, cell->host.text) == 0;
}

static int visit(void *userdata, const struct witness_cell *cell)
{
        struct comparison *c = userdata;
        struct matrix m = {.cell = cell, .first = c->out->differences_n};
        bool any = false;
        int r;

        m.changes = calloc(PROTOCOL_MAX_ * cell->methods_n * cell->paths_n, sizeof(int));
        if (!m.changes)
                return -ENOMEM;
        for (size_t i = 0; i < PROTOCOL_MAX_ * cell->methods_n * cell->paths_n; i++)
                m.changes[i] = SAME;
        r = fill_matrix(c, &m, &any);
        if (r == 0 && any && !dns_is_told(c, cell)) {
                for (int p = PROTOCOL_TLS; p < PROTOCOL_MAX_ && r == 0; p++)
                        r = tell_protocol(c, &m, (enum protocol)p);
                if (r == 0 && c->out->differences_n == m.first)
                        r = tell_protocol(c, &m, PROTOCOL_AUTO);
                if (r == 0 && c->out->differences_n == m.first)
                        r = tell_first_left(c, &m);
        }
        free(m.changes);
        return r;
}

/* ---- the whole */

static const struct policy_limits *limits_of(const struct policy *p, int rule)
{
        static const struct policy_limits none;

        return rule < 0 ? &none : &p->rules[rule].limits;
}

/* tdestroy() has no userdata, and twalk_r() hands no ownership: the pairs are gathered here. */
struct gathering {
        struct policy_limit_change *list;
        size_t n;
};

static void gather(const void *node, VISIT which, void *userdata)
{
        struct gathering *g = userdata;

        if (which == postorder || which == leaf)
                g->list[g->n++] = **(const struct policy_limit_change *const *)node;
}

/* Pairs of rules with equal limits are no change, unless one of the two is in several pairs: they share what they
 * limit. */
static bool is_split(const struct gathering *g, const struct policy_limit_change *pair)
{
        for (size_t i = 0; i < g->n; i++) {
                const struct policy_limit_change *other = &g->list[i];

                if (other != pair && (other->a_rule == pair->a_rule || other->b_rule == pair->b_rule))
                        return true;
        }
        return false;
}

static int tell_limits(struct comparison *c)
{
        struct gathering g = {calloc(c->pairs_n + 1, sizeof(*g.list)), 0};
        size_t kept = 0;

        if (!g.list)
                return -ENOMEM;
        twalk_r(c->pairs, gather, &g);
        for (size_t i = 0; i < g.n; i++) {
                const struct policy_limits *a = limits_of(c->a, g.list[i].a_rule),
                                           *b = limits_of(c->b, g.list[i].b_rule);

                g.list[i].is_split = policy_limits_equal(a, b) && policy_limits_any(a) && is_split(&g, &g.list[i]);
        }
        for (size_t i = 0; i < g.n; i++)
                if (g.list[i].is_split ||
                        !policy_limits_equal(limits_of(c->a, g.list[i].a_rule), limits_of(c->b, g.list[i].b_rule)))
                        g.list[kept++] = g.list[i];
        c->out->limits = g.list;
        c->out->limits_n = kept;
        return 0;
}

int policy_diff(const struct policy *a, const struct policy *b, struct policy_diff *ret)
{
        const struct policy *const policies[] = {a, b};
        struct policy_diff out = {0};
        struct comparison c = {.a = a, .b = b, .out = &out};
        int r = policy_witness_walk(policies, 2, visit, &c, &out.complete);

        if (r == 0)
                r = tell_limits(&c);
        tdestroy(c.pairs, free);
        if (r < 0) {
                policy_diff_done(&out);
                return r;
        }
        out.vm_limits = !policy_limits_equal(&a->limits, &b->limits);
        out.isolation = a->isolation != b->isolation || isolation_needed(a, false) != isolation_needed(b, false) ||
                        isolation_needed(a, true) != isolation_needed(b, true);
        *ret = out;
        return 0;
}

void policy_diff_done(struct policy_diff *d)
{
        for (size_t i = 0; i < d->differences_n; i++) {
                free(d->differences[i].ports);
                free(d->differences[i].method);
                free(d->differences[i].path);
                free(d->differences[i].path_pattern);
        }
        free(d->differences);
        free(d->limits);
        *d = (struct policy_diff){0};
}

bool policy_diff_is_same(const struct policy_diff *d)
{
        return d->complete && d->differences_n == 0 && d->limits_n == 0 && !d->vm_limits && !d->isolation;
}
