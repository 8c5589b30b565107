/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/pattern_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_patterns(const struct pattern *a, const struct pattern *b)
{
        if (a->kind != b->kind)
                return a->kind < b->kind ? -1 : 1;
        if (a->kind != PATTERN_PREFIX)
                return strcmp(a->name, b->name);
        if (a->prefix.kind != b->prefix.kind || a->prefix.bits != b->prefix.bits)
                return a->prefix.kind != b->prefix.kind ? (int)a->prefix.kind - (int)b->prefix.kind
                                                        : (int)a->prefix.bits - (int)b->prefix.bits;
        return memcmp(a->prefix.address, b->prefix.address, sizeof(a->prefix.address));
}

static int compare_order(const void *left, const void *right)
{
        const struct pattern_place *a = left, *b = right;

        if (a->policy != b->policy)
                return a->policy < b->policy ? -1 : 1;
        return (a->index > b->index) - (a->index < b->index);
}

static int compare_places(const void *left, const void *right)
{
        const struct pattern_place *a = left, *b = right;
        int order = compare_patterns(&a->rule->pattern, &b->rule->pattern);

        return order ? order : compare_order(left, right);
}

static int build(const struct policy *const *policies, size_t policies_n, struct pattern_index *x)
{
        size_t n = 0;

        for (size_t i = 0; i < policies_n; i++)
                n += policies[i]->rules_n;
        x->places = calloc(n + 1, sizeof(*x->places));
        x->matching = calloc(n + 1, sizeof(*x->matching));
        x->patterns = calloc(n + 1, sizeof(struct pattern *));
        x->first = calloc(n + 2, sizeof(*x->first));
        if (!x->places || !x->matching || !x->patterns || !x->first)
                return -ENOMEM;
        for (size_t i = 0; i < policies_n; i++)
                for (size_t k = 0; k < policies[i]->rules_n; k++)
                        x->places[x->places_n++] = (struct pattern_place){&policies[i]->rules[k], i, k};
        qsort(x->places, n, sizeof(*x->places), compare_places);
        for (size_t i = 0; i < n; i++)
                if (i == 0 || compare_patterns(&x->places[i - 1].rule->pattern, &x->places[i].rule->pattern) != 0) {
                        x->first[x->patterns_n] = i;
                        x->patterns[x->patterns_n++] = &x->places[i].rule->pattern;
                }
        x->first[x->patterns_n] = n;
        return 0;
}

/* The index of a pattern like this one; patterns_n: there is none. */
static size_t find_pattern(const struct pattern_index *x, const struct pattern *like)
{
        size_t low = 0, high = x->patterns_n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                int order = compare_patterns(x->patterns[middle], like);

                if (order == 0)
                        return middle;
                if (order < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return x->patterns_n;
}

/* All patterns that could match a host, one after the other: a name's suffixes in each form, an address's prefixes. */
struct candidates {
        const struct hostname *host;
        size_t at; /* in the name, or bits of the address */
        int kind;
        bool is_done;
};

static bool next_prefix(struct candidates *c, struct pattern *ret)
{
        size_t most = c->host->kind == HOST_IPV4 ? 32 : 128;

        if (c->at > most)
                return false;
        prefix_from_address(c->host, &ret->prefix);
        ret->kind = PATTERN_PREFIX;
        ret->prefix.bits = (uint8_t)c->at;
        for (size_t i = 0; i < sizeof(ret->prefix.address); i++) {
                size_t kept_bits = c->at > 8 * i ? c->at - 8 * i : 0;

                if (kept_bits < 8)
                        ret->prefix.address[i] &= (uint8_t)(0xff00 >> kept_bits);
        }
        c->at++;
        return true;
}

static bool next_candidate(struct candidates *c, struct pattern *ret)
{
        const char *dot;

        if (c->host->kind != HOST_NAME)
                return next_prefix(c, ret);
        if (c->is_done)
                return false;
        ret->kind = (enum pattern_kind)c->kind;
        ret->name_n = (uint8_t)(c->host->length - c->at);
        memcpy(ret->name, c->host->text + c->at, ret->name_n + 1u);
        if (++c->kind <= PATTERN_BELOW_AND_SELF)
                return true;
        c->kind = PATTERN_EXACT;
        dot = strchr(c->host->text + c->at, '.');
        c->is_done = !dot;
        c->at = dot ? (size_t)(dot + 1 - c->host->text) : c->at;
        return true;
}

const struct pattern *pattern_index_narrower(
        const struct pattern_index *x, const struct pattern *p, const struct hostname *host)
{
        struct candidates c = {.host = host};
        struct pattern candidate = {.kind = PATTERN_EXACT};

        while (next_candidate(&c, &candidate)) {
                size_t i = pattern_matches(&candidate, host) ? find_pattern(x, &candidate) : x->patterns_n;

                if (i < x->patterns_n && x->patterns[i] != p && (!p || pattern_covers(p, x->patterns[i])))
                        return x->patterns[i];
        }
        return NULL;
}

void pattern_index_match(struct pattern_index *x, const struct hostname *host)
{
        struct candidates c = {.host = host};
        struct pattern candidate = {.kind = PATTERN_EXACT};

        x->matching_n = 0;
        while (next_candidate(&c, &candidate)) {
                size_t i = pattern_matches(&candidate, host) ? find_pattern(x, &candidate) : x->patterns_n;

                for (size_t k = i < x->patterns_n ? x->first[i] : 0; i < x->patterns_n && k < x->first[i + 1]; k++)
                        x->matching[x->matching_n++] = x->places[k];
        }
        qsort(x->matching, x->matching_n, sizeof(*x->matching), compare_order);
}

int pattern_index_build(const struct policy *const *policies, size_t n, struct pattern_index *ret)
{
        struct pattern_index x = {0};
        int r = build(policies, n, &x);

        if (r < 0)
                pattern_index_done(&x);
        else
                *ret = x;
        return r;
}

void pattern_index_done(struct pattern_index *x)
{
        free(x->places);
        free(x->matching);
        free(x->patterns);
        free(x->first);
        *x = (struct pattern_index){0};
}
