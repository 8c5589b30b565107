/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* policy_lint.c judges rules by what they do; policy_lint_words.c by what they say. */

#include "tools/wbctl/policy_lint.h"

struct lint_work {
        const struct policy *policy;
        struct lint *out;
        size_t room;
        bool *is_told; /* by rule: enough is said of it, whatever it does */
        int error;     /* sticky: -ENOMEM */
};

/* At the value of a rule's key, or where the rule begins if the key is absent. */
void lint_tell(struct lint_work *w, enum lint_code code, size_t rule, enum rule_key key, const char *format, ...)
        __attribute__((format(printf, 5, 6)));
void lint_note(struct lint_work *w, enum lint_code code, size_t rule, enum rule_key key, const char *format, ...)
        __attribute__((format(printf, 5, 6)));

/* At a place of the policy as a whole. */
void lint_tell_at(struct lint_work *w, enum lint_code code, const struct policy_place *place, bool is_note,
        const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Does a let pass (or stop) all that b does? Of rules with the same action. Exact but for paths with encoded slashes.
 */
bool lint_covers(const struct policy_rule *a, const struct policy_rule *b);

bool lint_same_but_pattern(const struct policy_rule *a, const struct policy_rule *b);
bool lint_restricts(const struct policy_rule *rule);

/* The findings that need no decision. */
void lint_words(struct lint_work *w);
