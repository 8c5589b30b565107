/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#define NEEDS_MOST     4096u /* hosts and ports */
#define NAMES_MOST     4096u /* that were looked up */
#define METHODS_MOST   16u   /* of a host and port */
#define PATHS_MOST     32u
#define PATH_BYTES     1024u
#define PORTS_MOST     32u /* of a host */
#define SIBLINGS_LEAST 3u  /* that might be one pattern */

/* A host and port that somebody wanted. */
struct need {
        struct hostname host;
        uint16_t port;
        uint64_t denied, allowed;
        uint64_t denied_by[REASON_MAX_];
        uint64_t last_ns;
        bool opaque;    /* wanted without saying what for */
        bool inspected; /* and then looked into after all */
        bool tcp;       /* what came was neither TLS nor HTTP */
        bool plain;     /* all of it came as plain HTTP */
        char *methods[METHODS_MOST];
        size_t methods_n;
        char *paths[PATHS_MOST];
        size_t paths_n;
        uint64_t left_out; /* requests with more methods or paths than are kept */
};

/* A name that was looked up in vain. */
struct name {
        struct hostname host;
        uint64_t denied;
        uint64_t last_ns;
};

struct policy_suggest {
        const struct policy *known;
        bool *used;          /* by the known policy's rule */
        void *needs, *names; /* tsearch(), by host and port */
        size_t needs_n, names_n;
        uint64_t records, malformed, unspeakable, too_many, known_n;
        uint64_t not_suggested[REASON_MAX_];
        uint64_t first_ns, last_ns;
};

static int compare_needs(const void *left, const void *right)
{
        const struct need *a = left, *b = right;
        int order = strcmp(a->host.text, b->host.text);

        return order ? order : (int)a->port - (int)b->port;
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(((const struct name *)a)->host.text, ((const struct name *)b)->host.text);
}

int policy_suggest_new(const struct policy *known, struct policy_suggest **ret)
{
        struct policy_suggest *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->known = known;
        s->used = calloc(known ? known->rules_n + 1 : 1, sizeof(*s->used));
        if (!s->used) {
                free(s);
                return -ENOMEM;
        }
        *ret = s;
        return 0;
}

static void free_need(void *p)
{
        struct need *need = p;

        for (size_t i = 0; i < need->methods_n; i++)
                free(need->methods[i]);
        for (size_t i = 0; i < need->paths_n; i++)
                free(need->paths[i]);
        free(need);
}

void policy_suggest_free(struct policy_suggest *s)
{
        if (!s)
                return;
        tdestroy(s->needs, free_need);
        tdestroy(s->names, free);
        free(s->used);
        free(s);
}

void policy_suggest_count_malformed(struct policy_suggest *s)
{
        s->malformed++;
}

/* ---- reading */

/* The host in the one spelling that the broker writes and a policy takes. */
static bool take_host(const char *text, struct hostname *ret)
{
        size_t n = strlen(text);

        if (n == 0 || n > HOSTNAME_MAX_BYTES)
                return false;
        if (hostname_parse_address(text, n, ret) != 0 && hostname_parse(text, n, ret) != 0)
                return false;
        return strcmp(ret->text, text) == 0;
}

static bool is_writable_method(const char *method)
{
        for (const char *p = method; *p; p++)
                if (*p >= 'a' && *p <= 'z')
                        return false;
        return request_is_method(method, strlen(method)) && strlen(method) <= 32 && strcmp(method, "*") != 0;
}

/* A star in a path would be one of a pattern, and what is ambiguous no rule allows. */
static bool is_writable_path(const char *path)
{
        size_t n = strlen(path);

        return n <= PATH_BYTES && request_is_path(path, n) && !strchr(path, '*') && !request_path_is_ambiguous(path);
}

/* Reasons that a rule can do something about. */
static bool is_for_a_rule(enum reason reason)
{
        switch ((int)reason) {
        case REASON_ALLOWED:
        case REASON_NETWORK_NONE:
        case REASON_NO_RULE:
        case REASON_IP_LITERAL:
        case REASON_PORT_NOT_ALLOWED:
        case REASON_PROTOCOL_NOT_ALLOWED:
        case REASON_METHOD_NOT_ALLOWED:
        case REASON_PATH_NOT_ALLOWED: return true;
        default: return false;
        }
}

/* policy_explain() says so where neither TLS nor HTTP came; no text of a guest's in it has spaces. */
static bool is_tcp(const struct audit_line *line)
{
        return line->reason == REASON_PROTOCOL_NOT_ALLOWED && line->via != VIA_HTTP && line->detail &&
               strstr(line->detail, " It would take protocol: tcp there. ");
}

static void request_of(const struct audit_line *line, const struct hostname *host, struct request *ret)
{
        *ret = (struct request){.via = line->via,
                .host = *host,
                .port = line->port,
                .method = line->method,
                .path = line->path,
                .protocol = line->via == VIA_HTTP      ? PROTOCOL_HTTP
                            : line->via == VIA_INSPECT ? PROTOCOL_TLS
                            : is_tcp(line)             ? PROTOCOL_TCP
                                                       : PROTOCOL_AUTO};
}

/* What does the known policy say of it? True: it is allowed already. */
static bool ask_known(struct policy_suggest *s, const struct audit_line *line, const struct hostname *host)
{
        static const struct floor floor;
        struct request request;
        struct decision d;

        if (!s->known)
                return false;
        request_of(line, host, &request);
        policy_decide(s->known, &floor, &request, host->kind == HOST_NAME, &d);
        if (d.rule >= 0)
                s->used[d.rule] = true;
        return d.reason == REASON_ALLOWED;
}

/* Adds to a bounded set; -E2BIG: it is full. */
static int add_text(char **texts, size_t most, size_t *n, const char *text)
{
        for (size_t i = 0; i < *n; i++)
                if (strcmp(texts[i], text) == 0)
                        return 0;
        if (*n == most)
                return -E2BIG;
        texts[*n] = strdup(text);
        if (!texts[*n])
                return -ENOMEM;
        (*n)++;
        return 0;
}

/* *ret is NULL where there are too many already. */
static int find_need(struct policy_suggest *s, const struct hostname *host, uint16_t port, struct need **ret)
{
        struct need *need = calloc(1, sizeof(*need)), **found;

        *ret = NULL;
        if (!need)
                return -ENOMEM;
        need->host = *host;
        need->port = port;
        need->plain = true;
        found = tfind(need, &s->needs, compare_needs);
        if (!found && s->needs_n < NEEDS_MOST) {
                found = tsearch(need, &s->needs, compare_needs);
                if (!found) {
                        free(need);
                        return -ENOMEM;
                }
                s->needs_n++;
        }
        if (!found || *found != need)
                free(need);
        *ret = found ? *found : NULL;
        return 0;
}

static int take_request(struct need *need, const struct audit_line *line)
{
        int r = add_text(need->methods, METHODS_MOST, &need->methods_n, line->method);

        if (r == 0 && line->path)
                r = add_text(need->paths, PATHS_MOST, &need->paths_n, line->path);
        if (r == -E2BIG)
                need->left_out++;
        return r == -E2BIG ? 0 : r;
}

static int take_need(struct policy_suggest *s, const struct audit_line *line, const struct hostname *host)
{
        struct need *need;
        int r = find_need(s, host, line->port, &need);

        if (r < 0)
                return r;
        if (!need) {
                s->too_many++;
                return 0;
        }
        if (line->reason == REASON_ALLOWED)
                need->allowed++;
        else
                need->denied++;
        need->denied_by[line->reason]++;
        if (line->ts_ns > need->last_ns)
                need->last_ns = line->ts_ns;
        need->tcp = need->tcp || is_tcp(line);
        need->inspected = need->inspected || line->via == VIA_INSPECT;
        need->opaque = need->opaque || !line->method;
        need->plain = need->plain && line->via == VIA_HTTP;
        return line->method ? take_request(need, line) : 0;
}

static int take_name(struct policy_suggest *s, const struct audit_line *line, const struct hostname *host)
{
        struct name *name, **found, key = {.host = *host};

        if (line->reason == REASON_ALLOWED)
                return 0; /* what it was looked up for is in the log too */
        found = tfind(&key, &s->names, compare_names);
        if (!found && s->names_n == NAMES_MOST) {
                s->too_many++;
                return 0;
        }
        if (!found) {
                name = malloc(sizeof(*name));
                if (!name)
                        return -ENOMEM;
                *name = key;
                found = tsearch(name, &s->names, compare_names);
                if (!found) {
                        free(name);
                        return -ENOMEM;
                }
                s->names_n++;
        }
        (*found)->denied++;
        if (line->ts_ns > (*found)->last_ns)
                (*found)->last_ns = line->ts_ns;
        return 0;
}

static bool is_of_interest(const struct audit_line *line)
{
        switch ((int)line->event) {
        case AUDIT_EGRESS_OPEN:
        case AUDIT_EGRESS_DENY:
        case AUDIT_REQUEST:
        case AUDIT_DNS: return line->has_decision && line->host;
        default: return false;
        }
}

int policy_suggest_take(struct policy_suggest *s, const struct audit_line *line)
{
        static const struct floor floor;
        struct hostname host;
        bool is_dns = line->event == AUDIT_DNS;

        s->records++;
        if (!s->first_ns || line->ts_ns < s->first_ns)
                s->first_ns = line->ts_ns;
        if (line->ts_ns > s->last_ns)
                s->last_ns = line->ts_ns;
        if (!is_of_interest(line))
                return 0;
        if (!take_host(line->host, &host) || (!is_dns && !line->port) || (is_dns && host.kind != HOST_NAME) ||
                (line->method && !is_writable_method(line->method)) || (line->path && !is_writable_path(line->path))) {
                s->unspeakable++;
                return 0;
        }
        if (!is_for_a_rule(line->reason)) {
                s->not_suggested[line->reason]++;
                (void)ask_known(s, line, &host); /* a deny rule is used by what it denies */
                return 0;
        }
        if (host.kind != HOST_NAME && floor_denies_address(&floor, &host)) {
                s->not_suggested[REASON_FLOOR_ADDRESS]++;
                return 0;
        }
        /* A name in the floor is a service of the operator's, if it was allowed; else no rule helps. */
        if (line->reason != REASON_ALLOWED && floor_denies_name(&floor, &host)) {
                s->not_suggested[REASON_FLOOR_NAME]++;
                return 0;
        }
        if (ask_known(s, line, &host)) {
                s->known_n++;
                return 0;
        }
        return is_dns ? take_name(s, line, &host) : take_need(s, line, &host);
}

/* ---- writing */

struct writing {
        const struct policy_suggest *s;
        const struct need **needs;
        size_t needs_n;
        const struct name **names;
        size_t names_n;
};

static void list_need(const void *node, VISIT which, void *userdata)
{
        struct writing *w = userdata;

        if (which == postorder || which == leaf)
                w->needs[w->needs_n++] = *(const struct need *const *)node;
}

static void list_name(const void *node, VISIT which, void *userdata)
{
        struct writing *w = userdata;

        if (which == postorder || which == leaf)
                w->names[w->names_n++] = *(const struct name *const *)node;
}

static void write_time(FILE *to, uint64_t ns)
{
        char text[CLOCK_TEXT_BYTES];

        clock_format(ns, text);
        fprintf(to, "%s", text);
}

/* Nothing but its request can be told from the outside. */
static bool is_restricted(const struct need *need)
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
static bool are_alike(const struct need *a, const struct need *b)
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

static void write_why(FILE *to, const struct need *need)
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

static void write_rule(FILE *to, const struct need *const *needs, const size_t *members, size_t n)
{
        const struct need *first = needs[members[0]];

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
                const struct name *name = w->names[i];

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

        w.needs = calloc(s->needs_n + 1, sizeof(struct need *));
        w.names = calloc(s->names_n + 1, sizeof(struct name *));
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
