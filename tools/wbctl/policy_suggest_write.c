/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tools/wbctl/policy_suggest_private.h"

#define SIBLINGS_LEAST 3u /* that might be one pattern */

struct writing {
        const struct policy_suggest *s;
        const struct suggest_need **needs;
        size_t needs_n;
        const struct suggest_name **names;
        size_t names_n;
};

static void list_need(const void *node, VISIT which, void *userdata)
{
        struct writing *w = userdata;

        if (which == postorder || which == leaf)
                w->needs[w->needs_n++] = *(const struct suggest_need *const *)node;
}

static void list_name(const void *node, VISIT which, void *userdata)
{
        struct writing *w = userdata;

        if (which == postorder || which == leaf)
                w->names[w->names_n++] = *(const struct suggest_name *const *)node;
}

static void write_time(FILE *to, uint64_t ns)
{
        char text[CLOCK_TEXT_BYTES];

        clock_format(ns, text);
        fprintf(to, "%s", text);
}

/* Nothing but its request can be told from the outside. */
static bool is_restricted(const struct suggest_need *need)
{
        return !need->tcp && need->methods_n > 0 && (!need->opaque || need->inspected);
}

static bool same_texts(char *const *a, size_t a_n, char *const *b, size_t b_n)
{
        if (a_n != b_n)
                return false;
        for (size_t i = 0; i < a_n; i++) {
                bool has = false;

                for (size_t k = 0; k < b_n && !has; k++)
                        has = strcmp(a[i], b[k]) == 0;
                if (!has)
                        return false;
        }
        return true;
}

/* Would the two be one rule, but for their ports? */
static bool are_alike(const struct suggest_need *a, const struct suggest_need *b)
{
        if (strcmp(a->host.text, b->host.text) != 0 || a->tcp != b->tcp || is_restricted(a) != is_restricted(b))
                return false;
        return !is_restricted(a) ||
               (a->plain == b->plain && same_texts(a->methods, a->methods_n, b->methods, b->methods_n) &&
                       same_texts(a->paths, a->paths_n, b->paths, b->paths_n));
}

static void write_reasons(FILE *to, const uint64_t counts[REASON_MAX_], const char *between)
{
        for (int i = 0; i < REASON_MAX_; i++)
                if (i != REASON_ALLOWED && counts[i])
                        fprintf(to, "%s%s %" PRIu64, between, reason_info((enum reason)i)->name, counts[i]);
}

static void write_why(FILE *to, const struct suggest_need *need)
{
        fprintf(to, "  # port %u: ", need->port);
        if (need->denied) {
                fprintf(to, "denied %" PRIu64 " times (", need->denied);
                for (int i = 0, n = 0; i < REASON_MAX_; i++)
                        if (i != REASON_ALLOWED && need->denied_by[i])
                                fprintf(to, "%s%s", n++ ? ", " : "", reason_info((enum reason)i)->name);
                fprintf(to, ")");
        }
        if (need->allowed)
                fprintf(to, "%sallowed %" PRIu64 " times", need->denied ? ", " : "", need->allowed);
        fprintf(to, ", last ");
        write_time(to, need->last_ns);
        fprintf(to, "\n");
        if (need->left_out)
                fprintf(to,
                        "  # port %u: %" PRIu64
                        " requests had more methods or paths than are listed; a path may end in *\n",
                        need->port, need->left_out);
}

static void write_texts(FILE *to, const char *key, char *const *texts, size_t n)
{
        if (n == 0)
                return;
        fprintf(to, "    %s: [", key);
        for (size_t i = 0; i < n; i++) {
                fprintf(to, "%s\"", i ? ", " : "");
                for (const char *p = texts[i]; *p; p++)
                        fprintf(to, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
                fprintf(to, "\"");
        }
        fprintf(to, "]\n");
}

static void write_rule(FILE *to, const struct suggest_need *const *needs, const size_t *members, size_t n)
{
        const struct suggest_need *first = needs[members[0]];

        for (size_t i = 0; i < n; i++)
                write_why(to, needs[members[i]]);
        fprintf(to, "  - pattern: \"%s\"\n    ports: [", first->host.text);
        for (size_t i = 0; i < n; i++)
                fprintf(to, "%s%u", i ? ", " : "", needs[members[i]]->port);
        fprintf(to, "]\n");
        if (first->tcp)
                fprintf(to, "    protocol: tcp # what came was neither TLS nor HTTP: nothing of it can be judged\n");
        if (!is_restricted(first))
                return;
        if (first->plain)
                fprintf(to, "    protocol: http\n");
        write_texts(to, "http_methods", first->methods, first->methods_n);
        write_texts(to, "http_paths", first->paths, first->paths_n);
}

/* The needs from `from` on that are of one host, a rule for those that are alike. Answers where the next host is. */
static size_t write_host(FILE *to, const struct writing *w, size_t from)
{
        bool done[PORTS_MOST] = {false};
        size_t end = from, n;

        while (end < w->needs_n && strcmp(w->needs[end]->host.text, w->needs[from]->host.text) == 0)
                end++;
        n = end - from < PORTS_MOST ? end - from : PORTS_MOST;
        for (size_t i = 0; i < n; i++) {
                size_t members[PORTS_MOST], members_n = 0;

                for (size_t k = i; k < n && !done[i]; k++)
                        if (!done[k] && are_alike(w->needs[from + i], w->needs[from + k]))
                                members[members_n++] = from + k;
                if (members_n)
                        write_rule(to, w->needs, members, members_n);
                for (size_t k = 0; k < members_n; k++)
                        done[members[k] - from] = true;
        }
        if (end - from > n)
                fprintf(to, "  # and %zu more ports of %s, as of one who tries them all: left out\n", end - from - n,
                        w->needs[from]->host.text);
        return end;
}

static const char *parent_of(const char *host)
{
        const char *dot = strchr(host, '.');

        return dot ? dot + 1 : "";
}

static bool is_known_host(const struct writing *w, const char *host)
{
        for (size_t i = 0; i < w->needs_n; i++)
                if (strcmp(w->needs[i]->host.text, host) == 0)
                        return true;
        return false;
}

/* "*." and a name, if a policy may say so: not of a public suffix. */
static bool is_pattern(const char *below)
{
        char text[PATTERN_TEXT_BYTES], message[PATTERN_MESSAGE_BYTES];
        struct pattern pattern;
        int n = snprintf(text, sizeof(text), "*.%s", below);

        return *below && n > 0 && (size_t)n < sizeof(text) &&
               pattern_parse(text, (size_t)n, &pattern, message, sizeof(message)) == 0;
}

static int compare_texts(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names side by side that one pattern would match, each once. */
static void write_siblings(FILE *to, const struct writing *w)
{
        _cleanup_free_ const char **parents = calloc(w->needs_n + 1, sizeof(*parents));
        size_t n = 0;

        for (size_t i = 0; parents && i < w->needs_n; i++)
                if (w->needs[i]->host.kind == HOST_NAME &&
                        (i == 0 || strcmp(w->needs[i]->host.text, w->needs[i - 1]->host.text) != 0))
                        parents[n++] = parent_of(w->needs[i]->host.text);
        if (n)
                qsort(parents, n, sizeof(*parents), compare_texts);
        for (size_t i = 0, end; i < n; i = end) {
                for (end = i + 1; end < n && strcmp(parents[end], parents[i]) == 0; end++)
                        ;
                if (end - i >= SIBLINGS_LEAST && is_pattern(parents[i]))
                        fprintf(to,
                                "# %zu of the hosts could be one pattern, if all of it is to be trusted: \"*.%s\"\n",
                                end - i, parents[i]);
        }
}

static void write_names(FILE *to, const struct writing *w)
{
        bool any = false;

        for (size_t i = 0; i < w->names_n; i++) {
                const struct suggest_name *name = w->names[i];

                if (is_known_host(w, name->host.text))
                        continue;
                if (!any)
                        fprintf(to, "# These were only looked up, so that no port is known:\n");
                any = true;
                fprintf(to, "#  - {pattern: \"%s\", ports: [443]} # denied %" PRIu64 " times, last ", name->host.text,
                        name->denied);
                write_time(to, name->last_ns);
                fprintf(to, "\n");
        }
}

static void write_unused(FILE *to, const struct policy_suggest *s, const char *file)
{
        bool any = false;

        for (size_t i = 0; s->known && i < s->known->rules_n; i++) {
                const struct policy_rule *rule = &s->known->rules[i];
                char text[PATTERN_TEXT_BYTES];

                if (s->used[i])
                        continue;
                if (!any) {
                        fprintf(to, "# Rules that nothing in the log used, in ");
                        for (const char *p = file; *p; p++)
                                fputc(*p < 0x20 || *p > 0x7e ? '?' : *p, to);
                        fprintf(to, ":\n");
                }
                any = true;
                pattern_format(&rule->pattern, text);
                fprintf(to, "#   line %u: rule %zu: %s %s\n", rule->line, i, rule->deny ? "deny" : "allow", text);
        }
        if (s->known && !any)
                fprintf(to, "# Every rule was used.\n");
}

static void write_head(FILE *to, const struct policy_suggest *s)
{
        fprintf(to, "# Suggested from %" PRIu64 " audit records", s->records);
        if (s->records) {
                fprintf(to, ", ");
                write_time(to, s->first_ns);
                fprintf(to, " to ");
                write_time(to, s->last_ns);
        }
        fprintf(to, ". Read it before you use it: a guest chooses what it asks for.\n");
        if (s->known_n)
                fprintf(to, "# Allowed by the policy as it is, and not repeated: %" PRIu64 " records.\n", s->known_n);
        if (s->malformed)
                fprintf(to, "# No audit records, and skipped: %" PRIu64 " lines.\n", s->malformed);
        if (s->unspeakable)
                fprintf(to, "# Skipped, since no policy can spell their host, method or path: %" PRIu64 " records.\n",
                        s->unspeakable);
        if (s->too_many)
                fprintf(to, "# Skipped, since there are too many hosts: %" PRIu64 " records.\n", s->too_many);
        for (int i = 0; i < REASON_MAX_; i++)
                if (s->not_suggested[i]) {
                        fprintf(to, "# Not for a rule to open:");
                        write_reasons(to, s->not_suggested, " ");
                        fprintf(to, "\n");
                        break;
                }
}

void policy_suggest_write(const struct policy_suggest *s, const char *known_name, FILE *to)
{
        struct writing w = {.s = s};

        w.needs = calloc(s->needs_n + 1, sizeof(struct suggest_need *));
        w.names = calloc(s->names_n + 1, sizeof(struct suggest_name *));
        if (w.needs && w.names) {
                twalk_r(s->needs, list_need, &w);
                twalk_r(s->names, list_name, &w);
        }
        write_head(to, s);
        write_siblings(to, &w);
        fprintf(to, "version: 1\nnetwork: allowlist_domain\n");
        if (w.needs_n)
                fprintf(to, "egress_rules:\n");
        for (size_t i = 0; i < w.needs_n;)
                i = write_host(to, &w, i);
        write_names(to, &w);
        write_unused(to, s, known_name ? known_name : "");
        free(w.needs);
        free(w.names);
}
