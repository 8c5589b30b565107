/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "broker/isolation.h"
#include "tools/wbctl/policy_diff.h"
#include "tools/wbctl/policy_lint_private.h"

/* One packet of Ethernet: less than that is never moved at once. */
#define PACKET_BYTES 1500u

/* Of the rules with one name, how many each is compared with. */
#define NEIGHBOURS_MOST 64u

/* Wider prefixes than these are whole continents. */
#define WIDE_IPV4_BITS 8u
#define WIDE_IPV6_BITS 16u

/* Below these anybody gets a name, and they are not in the list of public suffixes, so that a wildcard loads. */
static const char *const hosting[] = {
        "akamaihd.net",
        "akamaized.net",
        "aliyuncs.com",
        "amazonaws.com",
        "aws.amazon.com",
        "azure.com",
        "azureedge.net",
        "backblazeb2.com",
        "cloudflarestorage.com",
        "core.windows.net",
        "digitaloceanspaces.com",
        "edgekey.net",
        "edgesuite.net",
        "fastly.net",
        "githubusercontent.com",
        "googleapis.com",
        "googleusercontent.com",
        "linodeobjects.com",
        "myqcloud.com",
        "oraclecloud.com",
        "sharepoint.com",
        "wasabisys.com",
        "windows.net",
        "workers.dev",
};

bool lint_restricts(const struct policy_rule *rule)
{
        return rule->methods_n > 0 || rule->paths_n > 0;
}

/* ---- rules beside rules */

/* The protocols that a rule lets pass or stops. */
static unsigned protocols_of(const struct policy_rule *rule)
{
        const unsigned tls = PROTOCOL_BIT(PROTOCOL_TLS), http = PROTOCOL_BIT(PROTOCOL_HTTP),
                       tcp = PROTOCOL_BIT(PROTOCOL_TCP);

        switch (rule->protocol) {
        case PROTOCOL_TLS: return tls;
        case PROTOCOL_HTTP: return http;
        case PROTOCOL_TCP: return rule->deny ? tcp : tls | http | tcp;
        case PROTOCOL_AUTO:
        case PROTOCOL_MAX_: break;
        }
        return rule->deny && !rule->protocol_set ? tls | http | tcp : tls | http;
}

static bool covers_ports(const struct policy_rule *a, const struct policy_rule *b)
{
        if (a->ports_n == 0)
                return true;
        for (size_t i = 0; i < b->ports_n; i++) {
                bool has = false;

                for (size_t k = 0; k < a->ports_n && !has; k++)
                        has = a->ports[k] == b->ports[i];
                if (!has)
                        return false;
        }
        return b->ports_n > 0;
}

static bool covers_texts(
        char *const *a, size_t a_n, char *const *b, size_t b_n, bool (*covers)(const char *a, const char *b))
{
        if (a_n == 0)
                return true;
        for (size_t i = 0; i < b_n; i++) {
                bool has = false;

                for (size_t k = 0; k < a_n && !has; k++)
                        has = covers(a[k], b[i]);
                if (!has)
                        return false;
        }
        return b_n > 0;
}

static bool is_same(const char *a, const char *b)
{
        return strcmp(a, b) == 0;
}

bool lint_covers(const struct policy_rule *a, const struct policy_rule *b)
{
        /* A star of b stands for anything: where a matches the pattern's own text, its star is under one of a's. */
        return pattern_covers(&a->pattern, &b->pattern) && covers_ports(a, b) &&
               (protocols_of(b) & ~protocols_of(a)) == 0 &&
               covers_texts(a->methods, a->methods_n, b->methods, b->methods_n, is_same) &&
               covers_texts(a->paths, a->paths_n, b->paths, b->paths_n, policy_path_matches);
}

bool lint_same_but_pattern(const struct policy_rule *a, const struct policy_rule *b)
{
        return a->deny == b->deny && covers_ports(a, b) && covers_ports(b, a) && protocols_of(a) == protocols_of(b) &&
               covers_texts(a->methods, a->methods_n, b->methods, b->methods_n, is_same) &&
               covers_texts(b->methods, b->methods_n, a->methods, a->methods_n, is_same) &&
               covers_texts(a->paths, a->paths_n, b->paths, b->paths_n, is_same) &&
               covers_texts(b->paths, b->paths_n, a->paths, a->paths_n, is_same) &&
               policy_limits_equal(&a->limits, &b->limits);
}

/* False: nothing was found. */
static bool judge_pair(struct lint_work *w, size_t first, size_t second)
{
        const struct policy_rule *a = &w->policy->rules[first], *b = &w->policy->rules[second];
        const struct pattern *p = &a->pattern, *q = &b->pattern;
        bool is_split = (p->kind == PATTERN_BELOW && q->kind == PATTERN_EXACT) ||
                        (p->kind == PATTERN_EXACT && q->kind == PATTERN_BELOW);

        if (pattern_covers(p, q) && pattern_covers(q, p) && lint_same_but_pattern(a, b)) {
                lint_tell(w, LINT_DUPLICATE, second, RULE_PATTERN,
                        "rule %zu says what rule %zu (line %u) says; remove one of them", second, first, a->line);
                w->is_told[first] = w->is_told[second] = true;
                return true;
        }
        if (is_split && strcmp(p->name, q->name) == 0 && lint_same_but_pattern(a, b) &&
                !policy_limits_any(&a->limits)) {
                lint_tell(w, LINT_SPLIT_WILDCARD, second, RULE_PATTERN,
                        "rule %zu and rule %zu (line %u) are one: \"**.%.200s\" matches the name and all below it",
                        second, first, a->line, p->name);
                return true;
        }
        return false;
}

static int compare_names(const void *left, const void *right)
{
        const struct policy_rule *a = *(const struct policy_rule *const *)left,
                                 *b = *(const struct policy_rule *const *)right;
        int order = strcmp(a->pattern.name, b->pattern.name);

        if (order == 0)
                order = memcmp(a->pattern.prefix.address, b->pattern.prefix.address, sizeof(a->pattern.prefix.address));
        return order ? order : (a > b) - (a < b);
}

/* Rules side by side in the order of their names; of many with one name each is compared with some before it. */
static void judge_pairs(struct lint_work *w)
{
        const struct policy *policy = w->policy;
        const struct policy_rule **sorted = calloc(policy->rules_n + 1, sizeof(struct policy_rule *));

        if (!sorted) {
                w->error = -ENOMEM;
                return;
        }
        for (size_t i = 0; i < policy->rules_n; i++)
                sorted[i] = &policy->rules[i];
        if (policy->rules_n)
                qsort(sorted, policy->rules_n, sizeof(struct policy_rule *), compare_names);
        for (size_t i = 0; i < policy->rules_n; i++)
                for (size_t k = i; k-- > 0 && i - k <= NEIGHBOURS_MOST;) {
                        if (strcmp(sorted[k]->pattern.name, sorted[i]->pattern.name) != 0)
                                break;
                        if (judge_pair(w, (size_t)(sorted[k] - policy->rules), (size_t)(sorted[i] - policy->rules)))
                                break;
                }
        free(sorted);
}

/* ---- one rule */

static bool is_in_floor(const struct pattern *pattern)
{
        static const struct floor floor;
        struct hostname host;
        const char *range;
        struct prefix wider;

        if (pattern->kind != PATTERN_PREFIX)
                return hostname_parse(pattern->name, pattern->name_n, &host) == 0 && floor_denies_name(&floor, &host);
        hostname_from_address(pattern->prefix.kind, pattern->prefix.address, &host);
        range = floor_denies_address(&floor, &host);
        return range && prefix_parse(range, strlen(range), &wider) == 0 && wider.bits <= pattern->prefix.bits;
}

static void judge_floor(struct lint_work *w, size_t i)
{
        const struct policy_rule *rule = &w->policy->rules[i];
        bool is_name = rule->pattern.kind != PATTERN_PREFIX;

        if (!is_in_floor(&rule->pattern))
                return;
        w->is_told[i] = true;
        if (rule->deny)
                lint_tell(w, LINT_IN_FLOOR, i, RULE_PATTERN,
                        "rule %zu denies what the floor denies already; remove it%s", i,
                        is_name ? ", unless it is for a service of the operator's of that name" : "");
        else if (is_name)
                lint_tell(w, LINT_IN_FLOOR, i, RULE_PATTERN,
                        "rule %zu is inside the floor and never allows, unless the broker's configuration offers a service of that name; remove it",
                        i);
        else
                lint_tell(w, LINT_IN_FLOOR, i, RULE_PATTERN,
                        "rule %zu is inside the floor and never allows; what the operator wants reached in there is offered as a service of the broker's configuration",
                        i);
}

static bool names_port(const struct policy_rule *rule, uint16_t port)
{
        for (size_t i = 0; i < rule->ports_n; i++)
                if (rule->ports[i] == port)
                        return true;
        return false;
}

static void judge_tcp(struct lint_work *w, size_t i)
{
        const struct policy_rule *rule = &w->policy->rules[i];
        unsigned port = names_port(rule, 443) ? 443 : names_port(rule, 80) ? 80 : 0;

        if (rule->deny || rule->protocol != PROTOCOL_TCP || !port)
                return;
        lint_tell(w, LINT_TCP_ON_WEB_PORT, i, RULE_PROTOCOL,
                "protocol: tcp lets anything pass on port %u%s, and neither server name nor Host is compared; leave protocol out, or name the port that needs it",
                port, rule->places[RULE_PORTS].line ? "" : " (ports: is absent, which is 80 and 443)");
}

static void judge_lists(struct lint_work *w, size_t i)
{
        const struct policy_rule *rule = &w->policy->rules[i];

        for (size_t k = 1; k < rule->ports_n; k++)
                for (size_t j = 0; j < k && j < 64; j++)
                        if (rule->ports[j] == rule->ports[k]) {
                                lint_tell(w, LINT_DUPLICATE, i, RULE_PORTS, "ports: %u stands there twice",
                                        rule->ports[k]);
                                k = rule->ports_n;
                                break;
                        }
        for (size_t k = 1; k < rule->methods_n; k++)
                for (size_t j = 0; j < k && j < 64; j++)
                        if (is_same(rule->methods[j], rule->methods[k])) {
                                lint_tell(w, LINT_DUPLICATE, i, RULE_METHODS, "http_methods: %.60s stands there twice",
                                        rule->methods[k]);
                                k = rule->methods_n;
                                break;
                        }
        for (size_t k = 0; k < rule->paths_n && rule->paths_n < 1000; k++)
                for (size_t j = 0; j < rule->paths_n; j++)
                        if (j != k && policy_path_matches(rule->paths[j], rule->paths[k]) &&
                                (j < k || !policy_path_matches(rule->paths[k], rule->paths[j]))) {
                                lint_tell(w, LINT_DUPLICATE, i, RULE_PATHS,
                                        "http_paths: \"%.80s\" matches all that \"%.80s\" does; remove the latter",
                                        rule->paths[j], rule->paths[k]);
                                break;
                        }
}

/* NULL, or why a pattern covers more than its author may know. */
static const char *why_wide(const struct pattern *p)
{
        if (p->kind == PATTERN_PREFIX &&
                p->prefix.bits < (p->prefix.kind == HOST_IPV4 ? WIDE_IPV4_BITS : WIDE_IPV6_BITS))
                return "is a large part of the whole internet";
        if (p->kind != PATTERN_BELOW && p->kind != PATTERN_BELOW_AND_SELF)
                return NULL;
        for (size_t i = 0; i < sizeof(hosting) / sizeof(*hosting); i++) {
                size_t n = strlen(hosting[i]);

                if (n >= p->name_n && strcmp(hosting[i] + n - p->name_n, p->name) == 0 &&
                        (n == p->name_n || hosting[i][n - p->name_n - 1] == '.'))
                        return "covers hosts that anybody can rent";
        }
        return NULL;
}

static void judge_width(struct lint_work *w, size_t i)
{
        const struct policy_rule *rule = &w->policy->rules[i];
        const char *why = rule->deny ? NULL : why_wide(&rule->pattern);
        char text[PATTERN_TEXT_BYTES];

        if (!why)
                return;
        pattern_format(&rule->pattern, text);
        lint_tell(w, LINT_WIDE, i, RULE_PATTERN, "rule %zu: %.255s %s; name the hosts that are needed", i, text, why);
}

/* ---- limits */

static void judge_own_limits(
        struct lint_work *w, const struct policy_limits *l, const struct policy_place places[LIMIT_KEY_MAX_])
{
        const struct policy_place *burst = &places[LIMIT_BURST];

        if (burst->line && !l->rate_bps)
                lint_tell_at(w, LINT_LIMIT, burst, false, "burst_bytes limits nothing without rate_bps; give that too");
        else if (burst->line && l->burst_bytes < PACKET_BYTES)
                lint_tell_at(w, LINT_LIMIT, burst, false,
                        "burst_bytes: %" PRIu64 " is less than a packet (%u); the rate will not be reached",
                        l->burst_bytes, PACKET_BYTES);
        if (burst->line && places[LIMIT_QUOTA].line && l->quota_bytes && l->burst_bytes > l->quota_bytes)
                lint_tell_at(w, LINT_LIMIT, burst, false,
                        "burst_bytes: %" PRIu64 " is more than quota_bytes: %" PRIu64 "; the rate never matters",
                        l->burst_bytes, l->quota_bytes);
        if (places[LIMIT_QUOTA].line && l->quota_bytes == 0)
                lint_tell_at(w, LINT_LIMIT, &places[LIMIT_QUOTA], false,
                        "quota_bytes: 0 lets nothing pass; leave it out for no quota");
}

static void judge_against_vm(struct lint_work *w, size_t i)
{
        static const struct {
                const char *name;
                size_t offset;
                enum limit_key key;
        } rows[] = {
                {"rate_bps", offsetof(struct policy_limits, rate_bps), LIMIT_RATE},
                {"quota_bytes", offsetof(struct policy_limits, quota_bytes), LIMIT_QUOTA},
                {"max_connections", offsetof(struct policy_limits, max_connections), LIMIT_CONNECTIONS},
                {"requests_per_s", offsetof(struct policy_limits, requests_per_s), LIMIT_REQUESTS},
        };
        const struct policy_rule *rule = &w->policy->rules[i];

        for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
                uint64_t own = *(const uint64_t *)(const void *)((const char *)&rule->limits + rows[k].offset);
                uint64_t vm = *(const uint64_t *)(const void *)((const char *)&w->policy->limits + rows[k].offset);

                if (own && vm && own > vm)
                        lint_tell(w, LINT_LIMIT, i, (enum rule_key)(RULE_LIMITS + (int)rows[k].key),
                                "%s: %" PRIu64 " of rule %zu is above the whole VM's %" PRIu64 " and never reached",
                                rows[k].name, own, i, vm);
        }
}

static void judge_limits(struct lint_work *w, size_t i)
{
        const struct policy_rule *rule = &w->policy->rules[i];
        size_t before = w->out->n;

        if (rule->deny && policy_limits_any(&rule->limits)) {
                lint_tell(w, LINT_LIMIT, i, RULE_PATTERN, "rule %zu denies: its limits mean nothing; remove them", i);
                return;
        }
        judge_own_limits(w, &rule->limits, &rule->places[RULE_LIMITS]);
        for (size_t k = before; k < w->out->n; k++)
                w->out->findings[k].rule = (int)i;
        judge_against_vm(w, i);
}

/* ---- the whole */

static const char *find_width(const struct policy *policy)
{
        if (policy->network == NETWORK_PUBLIC)
                return "network: public";
        for (size_t i = 0; i < policy->rules_n; i++)
                if (!policy->rules[i].deny && why_wide(&policy->rules[i].pattern))
                        return "a wide rule";
        return NULL;
}

static void judge_wall(struct lint_work *w)
{
        const struct policy *policy = w->policy;
        const char *width = policy->network == NETWORK_NONE ? NULL : find_width(policy);
        const struct policy_place begin = {1, 1}, *place = &policy->places[POLICY_ISOLATION];

        if (!place->line)
                place = policy->places[POLICY_NETWORK].line ? &policy->places[POLICY_NETWORK] : &begin;
        if (!width)
                return;
        if (isolation_needed(policy, false) == TIER_CONTAINER)
                lint_tell_at(w, LINT_WEAK_WALL, place, false,
                        "isolation: %s is content with a container, and %s gives it much to reach; add require_isolation: microvm, or narrow the rules",
                        isolation_class_name(policy->isolation), width);
        else if (policy->network == NETWORK_PUBLIC && isolation_needed(policy, true) == TIER_CONTAINER)
                lint_tell_at(w, LINT_WEAK_WALL, place, true,
                        "isolation: %s is content with a container where the broker says allow_container_standard, and %s gives it much to reach; require_isolation: gvisor rules that out",
                        isolation_class_name(policy->isolation), width);
}

static void judge_network(struct lint_work *w)
{
        const struct policy *policy = w->policy;
        const struct policy_place *network = &policy->places[POLICY_NETWORK];

        if (policy->network != NETWORK_NONE || policy->rules_n == 0)
                return;
        if (network->line)
                lint_tell_at(w, LINT_NETWORK_NONE, network, false,
                        "network: none lets nothing pass, whatever the rules say; write network: allowlist_domain, or remove the rules");
        else
                lint_tell_at(w, LINT_NETWORK_NONE, &policy->places[POLICY_RULES], false,
                        "network is absent, which is none: nothing passes, whatever the rules say; write network: allowlist_domain");
}

void lint_words(struct lint_work *w)
{
        const struct policy *policy = w->policy;

        judge_network(w);
        judge_wall(w);
        judge_own_limits(w, &policy->limits, policy->limit_places);
        judge_pairs(w);
        for (size_t i = 0; i < policy->rules_n && !w->error; i++) {
                judge_floor(w, i);
                judge_tcp(w, i);
                judge_lists(w, i);
                judge_width(w, i);
                judge_limits(w, i);
        }
}
