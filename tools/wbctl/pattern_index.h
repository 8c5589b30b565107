/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rules of some policies by their patterns, so that those which match a host are found without asking each. Pure.
 */

#include "broker/policy.h"

struct pattern_place {
        const struct policy_rule *rule;
        size_t policy, index; /* whose, and which of its rules */
};

struct pattern_index {
        struct pattern_place *places; /* all rules, by pattern, then in their order */
        size_t places_n;
        struct pattern_place *matching; /* see pattern_index_match(); room for all */
        size_t matching_n;
        const struct pattern **patterns; /* all there are, each once, sorted */
        size_t *first;                   /* of each: its first place; one more at the end */
        size_t patterns_n;
};

/* The policies outlive the index. 0 or -ENOMEM. */
int pattern_index_build(const struct policy *const *policies, size_t n, struct pattern_index *ret);
void pattern_index_done(struct pattern_index *x);

/* A pattern that matches host and is narrower than p, which is one of the index; any that matches it, if p is NULL. */
const struct pattern *pattern_index_narrower(
        const struct pattern_index *x, const struct pattern *p, const struct hostname *host);

/* Sets `matching` to the rules that match host, by policy and in their order there. */
void pattern_index_match(struct pattern_index *x, const struct hostname *host);
