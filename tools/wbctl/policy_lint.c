/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_lint.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tools/wbctl/policy_diff.h"
#include "tools/wbctl/policy_lint_private.h"
#include "tools/wbctl/policy_witness.h"

/* Decisions on trial, each a walk through a cell's rules. */
#define STEPS_MOST UINT64_C(60000000)

/* More than anybody reads. */
#define FINDINGS_MOST 1000u

#define NO_RULE (-1)

static const char *const code_names[] = {
        [LINT_NETWORK_NONE] = "network_none",
        [LINT_NEVER_DECIDES] = "never_decides",
        [LINT_NO_EFFECT] = "no_effect",
        [LINT_DUPLICATE] = "duplicate",
        [LINT_SPLIT_WILDCARD] = "split_wildcard",
        [LINT_IN_FLOOR] = "in_floor",
        [LINT_OPAQUE] = "opaque",
        [LINT_NEEDS_INTERCEPTION] = "needs_interception",
        [LINT_PUBLIC_NARROWS] = "public_narrows",
        [LINT_TCP_ON_WEB_PORT] = "tcp_on_web_port",
        [LINT_LIMIT] = "limit",
        [LINT_WIDE] = "wide",
        [LINT_WEAK_WALL] = "weak_wall",
};
static_assert(sizeof(code_names) / sizeof(*code_names) == LINT_CODE_MAX_, "a code has no name");

const char *lint_code_name(enum lint_code code)
{
        assert(code < LINT_CODE_MAX_);
        return code_names[code];
}

/* ---- findings */

static struct lint_finding *grow(struct lint_work *w)
{
        if (w->out->n == w->room) {
                size_t room = w->room ? 2 * w->room : 16;
                struct lint_finding *list = realloc(w->out->findings, room * sizeof(*list));

                if (!list) {
                        w->error = -ENOMEM;
                        return NULL;
                }
                w->out->findings = list;
                w->room = room;
        }
        return &w->out->findings[w->out->n++];
}

static void tell(struct lint_work *w, enum lint_code code, bool is_note, int rule, const struct policy_place *place,
        const char *format, va_list ap) __attribute__((format(printf, 6, 0)));

static void tell(struct lint_work *w, enum lint_code code, bool is_note, int rule, const struct policy_place *place,
        const char *format, va_list ap)
{
        struct lint_finding *f;

        if (w->out->n == FINDINGS_MOST) {
                w->out->is_cut = true;
                return;
        }
        f = grow(w);
        if (!f)
                return;
        *f = (struct lint_finding){.code = code, .is_note = is_note, .rule = rule, .place = *place};
        (void)vsnprintf(f->message, sizeof(f->message), format, ap);
}

static struct policy_place place_of(const struct policy_rule *rule, enum rule_key key)
{
        return rule->places[key].line ? rule->places[key] : (struct policy_place){rule->line, rule->column};
}

void lint_tell(struct lint_work *w, enum lint_code code, size_t rule, enum rule_key key, const char *format, ...)
{
        struct policy_place place = place_of(&w->policy->rules[rule], key);
        va_list ap;

        va_start(ap, format);
        tell(w, code, false, (int)rule, &place, format, ap);
        va_end(ap);
}

void lint_note(struct lint_work *w, enum lint_code code, size_t rule, enum rule_key key, const char *format, ...)
{
        struct policy_place place = place_of(&w->policy->rules[rule], key);
        va_list ap;

        va_start(ap, format);
        tell(w, code, true, (int)rule, &place, format, ap);
        va_end(ap);
}

void lint_tell_at(struct lint_work *w, enum lint_code code, const struct policy_place *place, bool is_note,
        const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        tell(w, code, is_note, NO_RULE, place, format, ap);
        va_end(ap);
}

/* ---- what a rule does */

/* What is known of a rule after all cells. */
struct trial {
        bool decides;     /* some request */
        bool matters;     /* some request is decided otherwise without it */
        bool opaque;      /* TLS that it would judge passes as it is, somewhere */
        bool intercepted; /* and somewhere it does not */
        int passed_by;    /* the rule that lets it pass, or NO_RULE */
};

struct trials {
        const struct policy *policy;
        struct trial *of;
        uint64_t steps;
        bool complete;
};

/* Cells without the one rule; the limits of who decides then are compared too. */
static bool decides_otherwise(
        const struct witness_cell *cell, const struct decision *with, size_t without, const struct request *request)
{
        static const struct floor floor;
        static const struct policy_limits none;
        const struct policy *part = &cell->parts[0];
        struct policy_rule *last = &part->rules[part->rules_n - 1], *gone = &part->rules[without];
        struct policy fewer = *part;
        struct decision d;
        const struct policy_limits *a, *b;

        /* The part's rules are a copy of its own: the rule steps out of it for the time of the question. */
        struct policy_rule kept = *gone;
        memmove(gone, gone + 1, (size_t)(last - gone) * sizeof(*gone));
        fewer.rules_n--;
        policy_decide(&fewer, &floor, request, cell->host.kind == HOST_NAME, &d);
        memmove(gone + 1, gone, (size_t)(last - gone) * sizeof(*gone));
        *gone = kept;
        if (d.rule >= (int)without)
                d.rule++;
        if ((d.reason == REASON_ALLOWED) != (with->reason == REASON_ALLOWED) || d.inspect != with->inspect)
                return true;
        if (d.reason != REASON_ALLOWED || d.rule == with->rule)
                return false;
        a = with->rule < 0 ? &none : &part->rules[with->rule].limits;
        b = d.rule < 0 ? &none : &part->rules[d.rule].limits;
        return policy_limits_any(a) || policy_limits_any(b);
}

static void try_request(struct trials *t, const struct witness_cell *cell, const struct request *request)
{
        static const struct floor floor;
        const struct policy *part = &cell->parts[0];
        struct decision d;

        policy_decide(part, &floor, request, cell->host.kind == HOST_NAME, &d);
        t->steps += part->rules_n;
        if (d.rule >= 0)
                t->of[cell->indices[0][d.rule]].decides = true;
        for (size_t i = 0; i < part->rules_n; i++) {
                struct trial *trial = &t->of[cell->indices[0][i]];

                if (trial->matters)
                        continue;
                t->steps += part->rules_n;
                trial->matters = decides_otherwise(cell, &d, i, request);
        }
}

/* The first allow rule that lets TLS pass and looks at nothing in it. */
static int find_passing(const struct witness_cell *cell, const struct request *request)
{
        const struct policy *part = &cell->parts[0];

        for (size_t i = 0; i < part->rules_n; i++)
                if (!part->rules[i].deny && !lint_restricts(&part->rules[i]) &&
                        policy_rule_stage(&part->rules[i], request) == STAGE_PASSED)
                        return (int)cell->indices[0][i];
        return NO_RULE;
}

/* Can the cell's rules that restrict methods or paths see them in TLS? */
static void try_interception(struct trials *t, const struct witness_cell *cell)
{
        const struct policy *part = &cell->parts[0];
        struct request request;
        struct decision d;

        witness_request(cell, PROTOCOL_TLS, NULL, NULL, &request);
        witness_decide(cell, 0, &request, &d);
        if (d.reason != REASON_ALLOWED)
                return;
        for (size_t i = 0; i < part->rules_n; i++) {
                struct trial *trial = &t->of[cell->indices[0][i]];
                struct policy_rule open = part->rules[i];

                if (!lint_restricts(&open))
                        continue;
                open.methods_n = open.paths_n = 0;
                if (policy_rule_stage(&open, &request) != STAGE_PASSED)
                        continue;
                trial->intercepted = trial->intercepted || d.inspect;
                if (!d.inspect && !trial->opaque) {
                        trial->opaque = true;
                        trial->passed_by = find_passing(cell, &request);
                }
        }
}

static int visit(void *userdata, const struct witness_cell *cell)
{
        struct trials *t = userdata;

        if (cell->is_dns || cell->parts[0].rules_n == 0)
                return 0;
        try_interception(t, cell);
        for (int p = 0; p < PROTOCOL_MAX_; p++)
                for (size_t i = 0; i < cell->methods_n; i++)
                        for (size_t k = 0; k < cell->paths_n; k++) {
                                struct request request;

                                if (t->steps > STEPS_MOST) {
                                        t->complete = false;
                                        return 0;
                                }
                                witness_request(cell, (enum protocol)p, cell->methods[i], cell->paths[k], &request);
                                try_request(t, cell, &request);
                        }
        return 0;
}

/* ---- what is said of it */

static const char *what_it_restricts(const struct policy_rule *rule)
{
        return rule->methods_n && rule->paths_n ? "methods and paths" : rule->methods_n ? "methods" : "paths";
}

static enum rule_key restricting_key(const struct policy_rule *rule)
{
        return rule->methods_n ? RULE_METHODS : RULE_PATHS;
}

static void tell_opaque(struct lint_work *w, size_t i, const struct trial *trial)
{
        const struct policy_rule *rule = &w->policy->rules[i];
        const char *what = what_it_restricts(rule);
        const struct policy_rule *by = trial->passed_by < 0 ? NULL : &w->policy->rules[trial->passed_by];

        if (by && trial->intercepted && !pattern_covers(&by->pattern, &rule->pattern))
                lint_note(w, LINT_OPAQUE, i, restricting_key(rule),
                        "rule %zu looks at %s, but not in TLS to what rule %d (line %u) lets pass as it is", i, what,
                        trial->passed_by, by->line);
        else if (!by)
                lint_tell(w, LINT_OPAQUE, i, restricting_key(rule),
                        "rule %zu looks at %s, but network: public lets TLS to its hosts pass as it is, on some port at least, and nobody sees them there; add allow rules that restrict, so that TLS is intercepted",
                        i, what);
        else
                lint_tell(w, LINT_OPAQUE, i, restricting_key(rule),
                        "rule %zu looks at %s, but rule %d (line %u) lets TLS to the same host and port pass as it is, and nobody sees them there; restrict rule %d too%s",
                        i, what, trial->passed_by, by->line, trial->passed_by,
                        rule->deny ? "" : ", or remove this rule");
}

/* The one rule that says all that this one says, or NO_RULE: it takes several. */
static int find_cover(const struct policy *policy, size_t i, bool deny)
{
        for (size_t k = 0; k < policy->rules_n; k++)
                if (k != i && policy->rules[k].deny == deny && lint_covers(&policy->rules[k], &policy->rules[i]))
                        return (int)k;
        return NO_RULE;
}

static void tell_no_effect(struct lint_work *w, size_t i, const struct trial *trial)
{
        const struct policy *policy = w->policy;
        const struct policy_rule *rule = &policy->rules[i];
        enum lint_code code = trial->decides ? LINT_NO_EFFECT : LINT_NEVER_DECIDES;
        const char *how = trial->decides ? "has no effect" : "never decides";
        int denied_by = find_cover(policy, i, true), allowed_by = rule->deny ? NO_RULE : find_cover(policy, i, false);

        if (denied_by >= 0)
                lint_tell(w, code, i, RULE_PATTERN,
                        "rule %zu %s: rule %d (line %u) denies all of it; remove one of them", i, how, denied_by,
                        policy->rules[denied_by].line);
        else if (rule->deny)
                lint_tell(w, code, i, RULE_PATTERN,
                        "rule %zu %s: what it denies is denied without it, since nothing allows it; remove it, or see which rule should allow more",
                        i, how);
        else if (allowed_by >= 0)
                lint_tell(w, code, i, RULE_PATTERN,
                        "rule %zu %s: rule %d (line %u) allows all that it does; remove it, or restrict rule %d", i,
                        how, allowed_by, policy->rules[allowed_by].line, allowed_by);
        else if (policy->network == NETWORK_PUBLIC)
                lint_tell(w, code, i, RULE_PATTERN,
                        "rule %zu %s: network: public allows that without it; remove it, or give it what is to be limited",
                        i, how);
        else
                lint_tell(w, code, i, RULE_PATTERN,
                        "rule %zu %s: the other rules together decide all of it in the same way; remove it", i, how);
}

static void tell_trial(struct lint_work *w, size_t i, const struct trial *trial)
{
        const struct policy_rule *rule = &w->policy->rules[i];

        if (w->is_told[i] || w->out->is_cut)
                return;
        if (trial->opaque)
                tell_opaque(w, i, trial);
        else if (!trial->matters)
                tell_no_effect(w, i, trial);
        else if (trial->intercepted && !rule->deny)
                lint_note(w, LINT_NEEDS_INTERCEPTION, i, restricting_key(rule),
                        "rule %zu looks at %s: in TLS that needs the broker's interception (inspect: enabled) and its authority in the guest; without it TLS is denied with inspection_required",
                        i, what_it_restricts(rule));
        if (w->policy->network == NETWORK_PUBLIC && !rule->deny && trial->matters && lint_restricts(rule))
                lint_note(w, LINT_PUBLIC_NARROWS, i, RULE_PATTERN,
                        "rule %zu takes away: under network: public all is allowed, but what an allow rule matches is as the rule says",
                        i);
}

static int try_rules(struct lint_work *w)
{
        const struct policy *policy = w->policy;
        _cleanup_free_ struct trial *of = calloc(policy->rules_n + 1, sizeof(*of));
        struct trials t = {.policy = policy, .of = of, .complete = true};
        bool complete = true;
        int r = of ? policy_witness_walk(&policy, 1, visit, &t, &complete) : -ENOMEM;

        if (r < 0)
                return r;
        w->out->complete = complete && t.complete;
        for (size_t i = 0; i < policy->rules_n; i++) {
                /* Where not all was tried, nothing is known of what has not mattered so far. */
                if (!w->out->complete)
                        of[i].matters = true;
                tell_trial(w, i, &of[i]);
        }
        return w->error;
}

static int compare_findings(const void *left, const void *right)
{
        const struct lint_finding *a = left, *b = right;

        if (a->place.line != b->place.line)
                return a->place.line < b->place.line ? -1 : 1;
        if (a->place.column != b->place.column)
                return a->place.column < b->place.column ? -1 : 1;
        return (int)a->code - (int)b->code;
}

int policy_lint(const struct policy *policy, struct lint *ret)
{
        struct lint out = {.complete = true};
        struct lint_work w = {.policy = policy, .out = &out};
        int r;

        w.is_told = calloc(policy->rules_n + 1, sizeof(*w.is_told));
        if (!w.is_told)
                return -ENOMEM;
        lint_words(&w);
        r = w.error ? w.error : policy->network == NETWORK_NONE ? 0 : try_rules(&w);
        free(w.is_told);
        if (r < 0) {
                policy_lint_done(&out);
                return r;
        }
        if (out.n)
                qsort(out.findings, out.n, sizeof(*out.findings), compare_findings);
        *ret = out;
        return 0;
}

void policy_lint_done(struct lint *l)
{
        free(l->findings);
        *l = (struct lint){0};
}
