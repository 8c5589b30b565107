/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_witness.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tools/wbctl/path_witness.h"
#include "tools/wbctl/pattern_index.h"

/* A rule looked at for a request is one step. Some ten seconds of them are taken; a policy of hundreds of rules needs
 * far less than a second. */
#define STEPS_MOST UINT64_C(60000000)

#define PORTS_N     (UINT16_MAX + 1u)
#define LABEL_BYTES 16u

struct walk {
        const struct policy *const *policies;
        size_t policies_n;
        witness_visit visit;
        void *userdata;
        struct pattern_index index;
        uint32_t *slots; /* by port: its place in `named`, from 1; 0: it is not there. All 0 between hosts. */
        uint64_t steps;
        bool complete;
};

/* ---- hosts */

/* The k-th label, of at most `room` bytes: "any", then all there are, the short ones first. False: there are no more.
 */
static bool make_label(size_t k, size_t room, char ret_label[LABEL_BYTES])
{
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
        const size_t base = sizeof(letters) - 1;
        size_t n = 0;

        if (k == 0) {
                (void)snprintf(ret_label, LABEL_BYTES, "%.*s", (int)(room < 3 ? room : 3), "any");
                return true;
        }
        for (; k > 0 && n < LABEL_BYTES - 1; k = (k - 1) / base)
                ret_label[n++] = letters[(k - 1) % base];
        ret_label[n] = '\0';
        return k == 0 && n <= room;
}

/* A name directly below `below` that p matches and no narrower pattern does. False: there is none. */
static bool find_name_below(const struct walk *w, const struct pattern *p, const char *below, struct hostname *ret)
{
        size_t n = strlen(below), room = n + 1 < HOSTNAME_MAX_BYTES ? HOSTNAME_MAX_BYTES - n - 1 : 0;
        char text[LABEL_BYTES + 1 + HOSTNAME_MAX_BYTES + 1], label[LABEL_BYTES];

        /* Each pattern can be in the way of one label. */
        for (size_t k = 0; room > 0 && k <= w->index.patterns_n + 1 && make_label(k, room, label); k++) {
                (void)snprintf(text, sizeof(text), "%s.%s", label, below);
                if (hostname_parse(text, strlen(text), ret) == 0 && !pattern_index_narrower(&w->index, p, ret))
                        return true;
        }
        return false;
}

/* The address behind the last one of a prefix. False: there is none. */
static bool next_address(const struct prefix *p, struct hostname *ret)
{
        uint8_t address[16];
        size_t bytes = p->kind == HOST_IPV4 ? 4 : 16;
        unsigned carry = 1;

        memcpy(address, p->address, sizeof(address));
        for (size_t i = 0; i < bytes; i++) {
                unsigned kept_bits = p->bits > 8 * i ? (unsigned)(p->bits - 8 * i) : 0;

                address[i] |= kept_bits >= 8 ? 0 : (uint8_t)(0xff >> kept_bits);
        }
        for (size_t i = bytes; i-- > 0 && carry;) {
                carry = ++address[i] == 0;
        }
        if (!carry)
                hostname_from_address(p->kind, address, ret);
        return !carry;
}

/* The lowest address of the prefix that no narrower pattern (than p) and no range of the floor has. */
static bool find_address(const struct walk *w, const struct pattern *p, const struct prefix *in, struct hostname *ret)
{
        static const struct floor floor;
        struct hostname host;

        hostname_from_address(in->kind, in->address, &host);
        while (prefix_contains(in, &host)) {
                const struct pattern *narrower = pattern_index_narrower(&w->index, p, &host);
                const char *range = floor_denies_address(&floor, &host);
                struct prefix taken;

                if (!narrower && !range) {
                        *ret = host;
                        return true;
                }
                if (narrower)
                        taken = narrower->prefix;
                else if (prefix_parse(range, strlen(range), &taken) != 0)
                        return false;
                if (!next_address(&taken, &host))
                        return false;
        }
        return false;
}

/* ---- ports */

/* The ports that rules for the host name, and for each the group it is in: the same rules name all of a group. */
struct port_classes {
        uint16_t *named;
        uint32_t *group; /* of each */
        size_t n, room;
        uint32_t groups_n;
};

static int name_port(struct walk *w, struct port_classes *c, uint16_t port)
{
        if (w->slots[port])
                return 0;
        if (c->n == c->room) {
                size_t room = c->room ? 2 * c->room : 16;
                uint16_t *named = realloc(c->named, room * sizeof(*named));
                uint32_t *group = named ? realloc(c->group, room * sizeof(*group)) : NULL;

                if (named)
                        c->named = named;
                if (!group)
                        return -ENOMEM;
                c->group = group;
                c->room = room;
        }
        c->named[c->n] = port;
        c->group[c->n++] = 0;
        w->slots[port] = (uint32_t)c->n;
        return 0;
}

/* Those of a group that the rule names become one of their own. */
static int split_groups(struct walk *w, struct port_classes *c, const struct policy_rule *rule)
{
        _cleanup_free_ uint32_t *moved = calloc(c->groups_n, sizeof(*moved)); /* by old group: the new one */
        uint8_t *seen = NULL;

        if (!moved)
                return -ENOMEM;
        seen = calloc(c->n + 1, 1);
        if (!seen)
                return -ENOMEM;
        for (size_t i = 0; i < rule->ports_n; i++) {
                uint32_t slot = w->slots[rule->ports[i]] - 1;
                uint32_t old = c->group[slot];

                if (seen[slot]) /* it stands there twice */
                        continue;
                seen[slot] = 1;
                if (!moved[old])
                        moved[old] = c->groups_n++;
                c->group[slot] = moved[old];
        }
        free(seen);
        return 0;
}

static int classify_ports(struct walk *w, struct port_classes *c)
{
        int r = 0;

        c->groups_n = 1;
        for (size_t i = 0; i < w->index.matching_n && r == 0; i++) {
                const struct policy_rule *rule = w->index.matching[i].rule;

                for (size_t j = 0; j < rule->ports_n && r == 0; j++)
                        r = name_port(w, c, rule->ports[j]);
                w->steps += rule->ports_n + c->groups_n;
                if (r == 0 && rule->ports_n)
                        r = split_groups(w, c, rule);
        }
        return r;
}

static void port_classes_done(struct walk *w, struct port_classes *c)
{
        for (size_t i = 0; i < c->n; i++)
                w->slots[c->named[i]] = 0;
        free(c->named);
        free(c->group);
}

/* One that no rule names: one that people know, if there is one. 0: there is none. */
static uint16_t find_unnamed_port(const struct walk *w)
{
        static const uint16_t known[] = {443, 80, 8443, 8080, 22};

        for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
                if (!w->slots[known[i]])
                        return known[i];
        for (unsigned port = 1; port < PORTS_N; port++)
                if (!w->slots[port])
                        return (uint16_t)port;
        return 0;
}

/* ---- cells */

/* What a cell points at. */
struct cell_parts {
        struct policy_rule *rules[WITNESS_POLICIES_MOST]; /* copies that share what they point at */
        size_t *indices[WITNESS_POLICIES_MOST];
        const char **methods;
        char **patterns; /* of paths */
        const char **paths;
        size_t methods_n, patterns_n;
        char strange_method[32];
        struct path_witnesses found;
};

static void cell_parts_done(struct cell_parts *parts)
{
        for (size_t i = 0; i < WITNESS_POLICIES_MOST; i++) {
                free(parts->rules[i]);
                free(parts->indices[i]);
        }
        free(parts->methods);
        free(parts->patterns);
        free(parts->paths);
        path_witnesses_done(&parts->found);
}

static bool names_port(const struct policy_rule *rule, uint16_t port)
{
        if (rule->ports_n == 0)
                return true;
        for (size_t i = 0; i < rule->ports_n; i++)
                if (rule->ports[i] == port)
                        return true;
        return false;
}

static int take_rules(struct walk *w, struct witness_cell *cell, struct cell_parts *parts)
{
        w->steps += w->index.matching_n;
        for (size_t i = 0; i < w->policies_n; i++) {
                struct policy *part = &cell->parts[i];

                *part = *w->policies[i];
                part->rules_n = 0;
                part->rules = parts->rules[i] = calloc(w->index.matching_n + 1, sizeof(struct policy_rule));
                cell->indices[i] = parts->indices[i] = calloc(w->index.matching_n + 1, sizeof(size_t));
                if (!part->rules || !parts->indices[i])
                        return -ENOMEM;
        }
        for (size_t k = 0; k < w->index.matching_n; k++) {
                const struct pattern_place *place = &w->index.matching[k];
                struct policy *part = &cell->parts[place->policy];

                if (!cell->is_dns && !names_port(place->rule, cell->ports[0]))
                        continue;
                parts->indices[place->policy][part->rules_n] = place->index;
                part->rules[part->rules_n++] = *place->rule;
        }
        return 0;
}

static int compare_texts(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t keep_each_once(char **texts, size_t n)
{
        size_t kept = 0;

        qsort(texts, n, sizeof(*texts), compare_texts);
        for (size_t i = 0; i < n; i++)
                if (kept == 0 || strcmp(texts[kept - 1], texts[i]) != 0)
                        texts[kept++] = texts[i];
        return kept;
}

static bool has_text(char *const *texts, size_t n, const char *text)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(texts[i], text) == 0)
                        return true;
        return false;
}

/* All methods and paths of the cell's rules, each once. */
static int take_words(const struct walk *w, const struct witness_cell *cell, struct cell_parts *parts)
{
        size_t methods_n = 0, paths_n = 0;
        char **methods;

        for (size_t i = 0; i < w->policies_n; i++)
                for (size_t k = 0; k < cell->parts[i].rules_n; k++) {
                        methods_n += cell->parts[i].rules[k].methods_n;
                        paths_n += cell->parts[i].rules[k].paths_n;
                }
        methods = calloc(methods_n + 2, sizeof(*methods));
        parts->methods = (const char **)methods;
        parts->patterns = calloc(paths_n + 1, sizeof(*parts->patterns));
        if (!methods || !parts->patterns)
                return -ENOMEM;
        methods_n = 0;
        for (size_t i = 0; i < w->policies_n; i++)
                for (size_t k = 0; k < cell->parts[i].rules_n; k++) {
                        const struct policy_rule *rule = &cell->parts[i].rules[k];

                        for (size_t j = 0; j < rule->methods_n; j++)
                                methods[2 + methods_n++] = rule->methods[j];
                        for (size_t j = 0; j < rule->paths_n; j++)
                                parts->patterns[parts->patterns_n++] = rule->paths[j];
                }
        methods_n = keep_each_once(methods + 2, methods_n);
        parts->patterns_n = keep_each_once(parts->patterns, parts->patterns_n);
        (void)snprintf(parts->strange_method, sizeof(parts->strange_method), "OTHER");
        for (unsigned i = 0; has_text(methods + 2, methods_n, parts->strange_method); i++)
                (void)snprintf(parts->strange_method, sizeof(parts->strange_method), "OTHER-%u", i);
        parts->methods[1] = parts->strange_method;
        parts->methods_n = 2 + methods_n;
        return 0;
}

/* As many paths as may be asked for. */
static int take_paths(struct walk *w, struct witness_cell *cell, struct cell_parts *parts)
{
        uint64_t rules = cell->parts[0].rules_n + cell->parts[1].rules_n + 1;
        uint64_t steps = PROTOCOL_MAX_ * rules * parts->methods_n;
        uint64_t left = w->steps < STEPS_MOST ? (STEPS_MOST - w->steps) / steps : 0;
        int r = path_witnesses_find(parts->patterns, parts->patterns_n, &parts->found);
        size_t n = parts->found.n;

        if (r < 0)
                return r;
        if (!parts->found.complete)
                w->steps += STEPS_MOST / 8; /* that took its time */
        parts->paths = calloc(n + 1, sizeof(*parts->paths));
        if (!parts->paths)
                return -ENOMEM;
        w->complete = w->complete && parts->found.complete && left > n;
        if (left <= n)
                n = left ? left - 1 : 0;
        for (size_t i = 0; i < n; i++)
                parts->paths[1 + i] = parts->found.paths[i];
        cell->paths = parts->paths;
        cell->paths_n = 1 + n;
        w->steps += steps * (n + 1);
        return 0;
}

static int visit_cell(struct walk *w, struct witness_cell *cell)
{
        static const char *const unknown[] = {NULL};
        struct cell_parts parts = {0};
        int r;

        if (w->steps > STEPS_MOST) {
                w->complete = false;
                return 0;
        }
        r = take_rules(w, cell, &parts);
        cell->methods = cell->paths = unknown;
        cell->methods_n = cell->paths_n = 1;
        if (r == 0 && !cell->is_dns)
                r = take_words(w, cell, &parts);
        if (r == 0 && !cell->is_dns)
                r = take_paths(w, cell, &parts);
        if (parts.methods_n) {
                cell->methods = parts.methods;
                cell->methods_n = parts.methods_n;
        }
        if (r == 0)
                r = w->visit(w->userdata, cell);
        cell_parts_done(&parts);
        return r;
}

static int visit_group(
        struct walk *w, struct witness_cell *cell, const struct port_classes *c, uint32_t group, uint16_t *ports)
{
        size_t n = 0;

        for (size_t i = 0; i < c->n; i++)
                if (c->group[i] == group)
                        ports[n++] = c->named[i];
        if (n == 0)
                return 0;
        cell->ports = ports;
        cell->ports_n = n;
        return visit_cell(w, cell);
}

static int visit_ports(struct walk *w, struct witness_cell *cell, struct port_classes *c)
{
        _cleanup_free_ uint16_t *ports = calloc(c->n + 1, sizeof(*ports));
        const uint16_t none = 0, other = find_unnamed_port(w);
        int r = ports ? 0 : -ENOMEM;

        for (uint32_t group = 0; group < c->groups_n && r == 0; group++)
                r = visit_group(w, cell, c, group, ports);
        cell->ports_n = 1;
        if (other && r == 0) {
                cell->ports = &other;
                cell->any_port = true;
                r = visit_cell(w, cell);
                cell->any_port = false;
        }
        if (r == 0 && cell->host.kind == HOST_NAME) {
                cell->ports = &none;
                cell->is_dns = true;
                r = visit_cell(w, cell);
        }
        cell->ports = NULL; /* they were this function's */
        return r;
}

static int visit_host(struct walk *w, const struct pattern *pattern, const struct hostname *host)
{
        static const struct floor floor;
        struct witness_cell cell = {.pattern = pattern, .host = *host};
        struct port_classes c = {0};
        int r;

        pattern_index_match(&w->index, host);
        r = classify_ports(w, &c);
        cell.in_floor = floor_denies_name(&floor, host) != NULL;
        if (r == 0)
                r = visit_ports(w, &cell, &c);
        port_classes_done(w, &c);
        return r;
}

/* What p matches and no narrower pattern does, if there is such a host. */
static int visit_pattern(struct walk *w, const struct pattern *p)
{
        struct hostname host;
        int r = 0;

        w->steps += 100;
        if (p->kind == PATTERN_PREFIX)
                return find_address(w, p, &p->prefix, &host) ? visit_host(w, p, &host) : 0;
        if (p->kind != PATTERN_BELOW && hostname_parse(p->name, p->name_n, &host) == 0 &&
                !pattern_index_narrower(&w->index, p, &host))
                r = visit_host(w, p, &host);
        else if (p->kind != PATTERN_EXACT && find_name_below(w, p, p->name, &host))
                return visit_host(w, p, &host);
        return r;
}

static int visit_rest(struct walk *w)
{
        static const struct prefix families[] = {{.kind = HOST_IPV4}, {.kind = HOST_IPV6}};
        struct hostname host;
        int r = 0;

        if (find_name_below(w, NULL, "example", &host))
                r = visit_host(w, NULL, &host);
        for (size_t i = 0; i < 2 && r == 0; i++)
                if (find_address(w, NULL, &families[i], &host))
                        r = visit_host(w, NULL, &host);
        return r;
}

int policy_witness_walk(
        const struct policy *const *policies, size_t n, witness_visit visit, void *userdata, bool *ret_complete)
{
        struct walk w = {.policies = policies, .policies_n = n, .visit = visit, .userdata = userdata, .complete = true};
        int r;

        assert(n <= WITNESS_POLICIES_MOST);
        w.slots = calloc(PORTS_N, sizeof(*w.slots));
        r = w.slots ? pattern_index_build(policies, n, &w.index) : -ENOMEM;
        for (size_t i = 0; i < w.index.patterns_n && r == 0 && w.steps <= STEPS_MOST; i++)
                r = visit_pattern(&w, w.index.patterns[i]);
        w.complete = w.complete && w.steps <= STEPS_MOST;
        if (r == 0)
                r = visit_rest(&w);
        free(w.slots);
        pattern_index_done(&w.index);
        if (r == 0)
                *ret_complete = w.complete;
        return r;
}

void witness_request(const struct witness_cell *cell, enum protocol protocol, const char *method, const char *path,
        struct request *ret)
{
        *ret = (struct request){.via = cell->is_dns ? VIA_DNS : VIA_CONNECT,
                .protocol = protocol,
                .host = cell->host,
                .port = cell->ports[0],
                .method = method,
                .path = path};
}

void witness_decide(const struct witness_cell *cell, size_t part, const struct request *request, struct decision *ret)
{
        static const struct floor floor;

        policy_decide(&cell->parts[part], &floor, request, cell->host.kind == HOST_NAME, ret);
        if (ret->rule >= 0)
                ret->rule = (int)cell->indices[part][ret->rule];
}
