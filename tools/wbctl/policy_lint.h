/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a policy says that loads and is probably not meant: rules without effect, restrictions that cannot be judged,
 * limits that limit nothing, doors wider than their author may think. Whether a rule has an effect is found by asking
 * the broker's own decision function with and without it about requests that stand for all (policy_witness.h). Pure.
 */

#include <stdbool.h>
#include <stddef.h>

#include "broker/policy.h"

enum lint_code {
        LINT_NETWORK_NONE,       /* rules beside network: none */
        LINT_NEVER_DECIDES,      /* no request is decided by the rule */
        LINT_NO_EFFECT,          /* without the rule the same would be decided */
        LINT_DUPLICATE,          /* the rule, or a word of a list, stands there twice */
        LINT_SPLIT_WILDCARD,     /* `*.x` and `x`, where `**.x` says both */
        LINT_IN_FLOOR,           /* never allows */
        LINT_OPAQUE,             /* its methods or paths cannot be judged: TLS passes as it is */
        LINT_NEEDS_INTERCEPTION, /* they can, if the broker intercepts TLS */
        LINT_PUBLIC_NARROWS,     /* under network: public an allow rule takes away */
        LINT_TCP_ON_WEB_PORT,    /* protocol: tcp where TLS or HTTP is spoken */
        LINT_LIMIT,              /* a limit that limits nothing, everything, or less than another */
        LINT_WIDE,               /* strangers' hosts are covered */
        LINT_WEAK_WALL,          /* much network behind a weak wall */
        LINT_CODE_MAX_,
};

struct lint_finding {
        enum lint_code code;
        bool is_note; /* worth knowing, nothing to be done about */
        int rule;     /* its index, or -1 */
        struct policy_place place;
        char message[512]; /* what is so, and what to do */
};

struct lint {
        struct lint_finding *findings; /* in the order of the file */
        size_t n;
        bool is_cut;   /* there are more than a thousand: the others were not looked for */
        bool complete; /* false: the policy is too large for all rules to be tried */
};

const char *lint_code_name(enum lint_code code);

/* 0 or -ENOMEM. */
int policy_lint(const struct policy *policy, struct lint *ret);
void policy_lint_done(struct lint *l);
