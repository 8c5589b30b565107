/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What one policy allows that another does not, by what they decide and not by how they are written: the broker's own
 * decision function is asked about requests that stand for all requests (policy_witness.h). So each difference is real
 * (its request is one that the two decide differently), and where there is none and the comparison was complete no
 * request is decided differently by built-in floor and rules. Compared are allowed or not, TLS intercepted or passed
 * as it is, the limits of the rule that decides and which rules share them, those of the whole VM, and the wall that is
 * asked for. Not compared: the reason of a denial, and the index of a rule. Pure.
 */

#include "tools/wbctl/policy_witness.h"

enum policy_change {
        CHANGE_ALLOWS,     /* b allows what a does not */
        CHANGE_DENIES,     /* a allows what b does not */
        CHANGE_INTERCEPTS, /* both allow; b has TLS intercepted */
        CHANGE_PASSES,     /* both allow; b lets TLS pass as it is */
        CHANGE_MAX_,
};

#define PROTOCOL_BIT(p) (1u << (p))

/* A request that is decided differently, and all that is so together with it. */
struct policy_difference {
        enum policy_change change;
        struct pattern pattern; /* what the host stands for, where has_pattern */
        bool has_pattern;       /* else: for all of its kind that no rule matches */
        bool in_floor;          /* an operator's service alone can have the name */
        bool is_dns;            /* the question for the name, no connection */
        bool any_port;          /* for all ports that no rule for the host names; ports holds one of them */
        bool unseen;            /* inside of TLS that neither policy has intercepted: plain `why`, but nobody looks */
        struct hostname host;   /* the witness */
        uint16_t *ports;        /* all of them, sorted; any is a witness */
        size_t ports_n;
        unsigned protocols; /* PROTOCOL_BIT() of each; PROTOCOL_AUTO: before the first bytes of the connection */
        char *method;       /* NULL: whichever */
        bool every_method;  /* whichever it is, once it is known; method is one */
        bool any_method;    /* method is one that no rule names */
        char *path;         /* NULL: whichever */
        char *path_pattern; /* all paths of it are meant, path is one; or NULL: paths that are like it to the rules */
};

/* Another limit for what both allow. */
struct policy_limit_change {
        int a_rule, b_rule; /* who decide, or DECISION_NO_RULE */
        struct hostname host;
        uint16_t port;
        bool is_split; /* the limits are alike, but one rule's were shared by what has now several, or the reverse */
};

struct policy_diff {
        struct policy_difference *differences;
        size_t differences_n;
        struct policy_limit_change *limits;
        size_t limits_n;
        bool vm_limits;  /* those of the whole VM differ */
        bool isolation;  /* class or least tier differ */
        bool complete;   /* false: the policies are too large to be compared wholly */
        size_t left_out; /* differences of paths beyond what is told of one host and port */
};

/* 0 or -ENOMEM. */
int policy_diff(const struct policy *a, const struct policy *b, struct policy_diff *ret);
void policy_diff_done(struct policy_diff *d);

/* Nothing differs, as far as this compares, and it compared everything. */
bool policy_diff_is_same(const struct policy_diff *d);

bool policy_limits_equal(const struct policy_limits *a, const struct policy_limits *b);
bool policy_limits_any(const struct policy_limits *l);
