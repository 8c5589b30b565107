/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const enum reason stage_reasons[] = {
        [STAGE_HOST] = REASON_NO_RULE,
        [STAGE_PORT] = REASON_PORT_NOT_ALLOWED,
        [STAGE_PROTOCOL] = REASON_PROTOCOL_NOT_ALLOWED,
        [STAGE_METHOD] = REASON_METHOD_NOT_ALLOWED,
        [STAGE_PATH] = REASON_PATH_NOT_ALLOWED,
        [STAGE_PASSED] = REASON_ALLOWED,
};
static_assert(sizeof(stage_reasons) / sizeof(*stage_reasons) == STAGE_MAX_, "a stage has no reason");

struct policy *policy_ref(struct policy *p)
{
        (void)__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
        return p;
}

static void rule_done(struct policy_rule *rule)
{
        for (size_t i = 0; i < rule->methods_n; i++)
                free(rule->methods[i]);
        for (size_t i = 0; i < rule->paths_n; i++)
                free(rule->paths[i]);
        free(rule->methods);
        free(rule->paths);
        free(rule->ports);
}

void policy_unref(struct policy *p)
{
        if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0)
                return;
        for (size_t i = 0; i < p->rules_n; i++)
                rule_done(&p->rules[i]);
        free(p->rules);
        free(p);
}

/*
 * `*` matches any run of bytes. Each literal piece is sought as early as it can be, so that only the last star needs
 * trying again. Where stars_stop, no star reaches over an encoded slash: then each of the path's is spelled by the
 * pattern.
 */
static bool glob_matches(const char *pattern, const char *path, bool stars_stop)
{
        const char *behind_star = NULL, *again = NULL;

        while (*path) {
                if (*pattern == '*') {
                        behind_star = ++pattern;
                        again = path;
                } else if (*pattern == *path) {
                        pattern++;
                        path++;
                } else if (behind_star && !(stars_stop && request_is_encoded_slash(again))) {
                        pattern = behind_star;
                        path = ++again;
                } else {
                        return false;
                }
        }
        while (*pattern == '*')
                pattern++;
        return *pattern == '\0';
}

bool policy_path_matches(const char *pattern, const char *path)
{
        return glob_matches(pattern, path, false);
}

enum path_verdict {
        PATH_DIFFERS,
        PATH_MATCHES,
        PATH_AMBIGUOUS, /* a server may read it otherwise than the rule does */
};

static enum path_verdict judge_path(const struct policy_rule *rule, const char *path)
{
        bool has_slash = request_path_has_encoded_slash(path);
        bool is_spelled = !has_slash;
        enum path_verdict verdict = PATH_DIFFERS;

        if (request_path_is_ambiguous(path))
                return PATH_AMBIGUOUS;
        for (size_t i = 0; i < rule->paths_n; i++) {
                if (glob_matches(rule->paths[i], path, true))
                        return PATH_MATCHES;
                if (has_slash && glob_matches(rule->paths[i], path, false))
                        verdict = PATH_AMBIGUOUS;
                is_spelled = is_spelled || request_path_has_encoded_slash(rule->paths[i]);
        }
        return is_spelled ? verdict : PATH_AMBIGUOUS;
}

/* port 0: some port. A deny rule denies all of them only if it names none. */
static bool permits_port(const struct policy_rule *rule, uint16_t port)
{
        if (rule->ports_n == 0 || (port == 0 && !rule->deny))
                return true;
        for (size_t i = 0; i < rule->ports_n; i++)
                if (rule->ports[i] == port)
                        return true;
        return false;
}

static bool permits_protocol(const struct policy_rule *rule, enum protocol protocol)
{
        if (rule->deny && !rule->protocol_set)
                return true;
        switch (rule->protocol) {
        case PROTOCOL_AUTO: return protocol != PROTOCOL_TCP;
        case PROTOCOL_TCP: return rule->deny ? protocol == PROTOCOL_TCP : true; /* opaque: also TLS and HTTP */
        case PROTOCOL_TLS:
        case PROTOCOL_HTTP:
        case PROTOCOL_MAX_: break;
        }
        return rule->protocol == protocol || (!rule->deny && protocol == PROTOCOL_AUTO);
}

static bool permits_method(const struct policy_rule *rule, const char *method)
{
        if (rule->methods_n == 0 || !method)
                return rule->methods_n == 0 || !rule->deny;
        for (size_t i = 0; i < rule->methods_n; i++)
                if (strcmp(rule->methods[i], method) == 0)
                        return true;
        return false;
}

static bool permits_path(const struct policy_rule *rule, const char *path)
{
        if (rule->paths_n == 0 || !path)
                return rule->paths_n == 0 || !rule->deny;
        return judge_path(rule, path) == PATH_MATCHES;
}

enum policy_stage policy_rule_stage(const struct policy_rule *rule, const struct request *request)
{
        if (!pattern_matches(&rule->pattern, &request->host))
                return STAGE_HOST;
        if (!permits_port(rule, request->port))
                return STAGE_PORT;
        if (!permits_protocol(rule, request->protocol))
                return STAGE_PROTOCOL;
        if (!permits_method(rule, request->method))
                return STAGE_METHOD;
        if (!permits_path(rule, request->path))
                return STAGE_PATH;
        return STAGE_PASSED;
}

/* The most specific of the rules that the request passes, the first of equals; DECISION_NO_RULE if there is none. */
static int best_rule(const struct policy *policy, const struct request *request, bool deny)
{
        int best = DECISION_NO_RULE;

        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];

                if (rule->deny != deny || policy_rule_stage(rule, request) != STAGE_PASSED)
                        continue;
                if (best < 0 || pattern_compare(&rule->pattern, &policy->rules[best].pattern) > 0)
                        best = (int)i;
        }
        return best;
}

/*
 * Where path rules are for this host and port, a path that they cannot judge is malformed. An encoded slash is judged
 * by the rule that spells it.
 */
static bool path_is_malformed(const struct policy *policy, const struct request *request)
{
        bool is_ambiguous = false;

        if (!request->path)
                return false;
        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];

                if (rule->paths_n == 0 || !pattern_matches(&rule->pattern, &request->host) ||
                        !permits_port(rule, request->port))
                        continue;
                switch (judge_path(rule, request->path)) {
                case PATH_DIFFERS: break;
                case PATH_MATCHES: return false;
                case PATH_AMBIGUOUS: is_ambiguous = true; break;
                }
        }
        return is_ambiguous;
}

static bool restricts(const struct policy_rule *rule)
{
        return rule->methods_n > 0 || rule->paths_n > 0;
}

/*
 * TLS has to be intercepted if every allow rule that could let it pass looks at methods or paths: one that does not
 * lets it pass opaque. A rule for plain HTTP lets no TLS pass and so has no say, unless there are only such.
 */
static bool needs_inspection(const struct policy *policy, const struct request *request)
{
        bool any = false, all_restrict = true, any_tls = false, all_tls_restrict = true;

        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];

                if (rule->deny || !pattern_matches(&rule->pattern, &request->host) ||
                        !permits_port(rule, request->port))
                        continue;
                any = true;
                all_restrict = all_restrict && restricts(rule);
                if (!permits_protocol(rule, PROTOCOL_TLS))
                        continue;
                any_tls = true;
                all_tls_restrict = all_tls_restrict && restricts(rule);
        }
        return any_tls ? all_tls_restrict : any && all_restrict;
}

static void deny(struct decision *d, enum reason reason)
{
        d->reason = reason;
        d->inspect = false;
}

static enum policy_stage latest_stage(const struct policy *policy, const struct request *request)
{
        enum policy_stage latest = STAGE_HOST;

        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];
                enum policy_stage stage = rule->deny ? STAGE_HOST : policy_rule_stage(rule, request);

                if (stage > latest)
                        latest = stage;
        }
        return latest;
}

/* Steps 3 to 5 of INTERFACES.md, Decision. */
static void decide_by_rules(const struct policy *policy, const struct request *request, struct decision *d)
{
        enum policy_stage stage;
        int denying = best_rule(policy, request, true);

        if (denying >= 0) {
                d->rule = denying;
                deny(d, REASON_DENY_RULE);
                return;
        }
        if (path_is_malformed(policy, request)) {
                deny(d, REASON_MALFORMED_REQUEST);
                return;
        }
        d->rule = best_rule(policy, request, false);
        if (d->rule >= 0) {
                d->inspect = needs_inspection(policy, request);
                return;
        }
        stage = latest_stage(policy, request);
        /* What an allow rule says of a host and port holds in a public network too. */
        if (policy->network == NETWORK_PUBLIC && stage <= STAGE_PORT)
                return;
        deny(d, stage == STAGE_HOST && request->host.kind != HOST_NAME ? REASON_IP_LITERAL : stage_reasons[stage]);
}

#define PORTS_N (UINT16_MAX + 1u)

/* Which ports of the host are denied by a rule for good, whatever is asked there? */
static void find_denied_ports(
        const struct policy *policy, const struct request *request, uint8_t ret_denied[PORTS_N / 8])
{
        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];
                struct request one = *request;

                if (!rule->deny || !pattern_matches(&rule->pattern, &request->host))
                        continue;
                one.port = rule->ports_n ? rule->ports[0] : 0;
                if (policy_rule_stage(rule, &one) != STAGE_PASSED)
                        continue;
                if (rule->ports_n == 0)
                        memset(ret_denied, 0xff, PORTS_N / 8);
                for (size_t j = 0; j < rule->ports_n; j++)
                        ret_denied[rule->ports[j] / 8] |= (uint8_t)(1u << rule->ports[j] % 8);
        }
}

static bool is_denied(const uint8_t denied[PORTS_N / 8], uint16_t port)
{
        return denied[port / 8] & 1u << port % 8;
}

/*
 * A DNS question names no port: it is judged by the port that gets furthest, which is one that the most specific rule
 * allows; else, in a public network, any that is not denied.
 */
static uint16_t port_for_dns(const struct policy *policy, const struct request *request)
{
        uint8_t denied[PORTS_N / 8] = {0};
        const struct policy_rule *best = NULL;
        uint16_t port = 0, named = 0;

        find_denied_ports(policy, request, denied);
        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];

                if (rule->deny || !pattern_matches(&rule->pattern, &request->host))
                        continue;
                for (size_t j = 0; j < rule->ports_n; j++) {
                        named = rule->ports[j];
                        if (is_denied(denied, named))
                                continue;
                        if (!best || pattern_compare(&rule->pattern, &best->pattern) > 0) {
                                best = rule;
                                port = named;
                        }
                        break;
                }
        }
        if (best)
                return port;
        if (policy->network == NETWORK_PUBLIC || !named)
                for (uint16_t any = UINT16_MAX; any > 0; any--)
                        if (!is_denied(denied, any))
                                return any;
        return named ? named : 443;
}

void policy_decide(const struct policy *policy, const struct floor *floor, const struct request *request,
        bool is_service, struct decision *ret)
{
        struct decision d = {.reason = REASON_ALLOWED, .rule = DECISION_NO_RULE};
        struct request judged = *request;

        if (policy->network == NETWORK_NONE) {
                deny(&d, REASON_NETWORK_NONE);
                *ret = d;
                return;
        }
        if (!is_service)
                d.floor = request->host.kind == HOST_NAME ? floor_denies_name(floor, &request->host)
                                                          : floor_denies_address(floor, &request->host);
        if (d.floor) {
                deny(&d, request->host.kind == HOST_NAME ? REASON_FLOOR_NAME : REASON_FLOOR_ADDRESS);
                *ret = d;
                return;
        }
        if (judged.port == 0)
                judged.port = port_for_dns(policy, request);
        decide_by_rules(policy, &judged, &d);
        *ret = d;
}

enum reason policy_decide_addresses(
        const struct floor *floor, const struct hostname *addresses, size_t n, const char **ret_floor)
{
        for (size_t i = 0; i < n; i++) {
                const char *range = floor_denies_address(floor, &addresses[i]);

                if (range) {
                        *ret_floor = range;
                        return REASON_FLOOR_ADDRESS;
                }
        }
        return REASON_ALLOWED;
}

void policy_protocols(const struct policy *policy, const struct request *request, bool ret_allowed[PROTOCOL_MAX_])
{
        bool any = false;

        for (int p = PROTOCOL_AUTO + 1; p < PROTOCOL_MAX_; p++) {
                struct request asked = *request;
                struct decision d = {.reason = REASON_ALLOWED, .rule = DECISION_NO_RULE};

                asked.protocol = (enum protocol)p;
                if (policy->network == NETWORK_NONE)
                        deny(&d, REASON_NETWORK_NONE);
                else
                        decide_by_rules(policy, &asked, &d);
                ret_allowed[p] = d.reason == REASON_ALLOWED;
                any = any || ret_allowed[p];
        }
        ret_allowed[PROTOCOL_AUTO] = any;
}
