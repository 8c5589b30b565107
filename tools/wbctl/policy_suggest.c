/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_suggest_private.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static int compare_needs(const void *left, const void *right)
{
        const struct suggest_need *a = left, *b = right;
        int order = strcmp(a->host.text, b->host.text);

        return order ? order : (int)a->port - (int)b->port;
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(((const struct suggest_name *)a)->host.text, ((const struct suggest_name *)b)->host.text);
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
        struct suggest_need *need = p;

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
static int find_need(struct policy_suggest *s, const struct hostname *host, uint16_t port, struct suggest_need **ret)
{
        struct suggest_need *need = calloc(1, sizeof(*need)), **found;

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

static int take_request(struct suggest_need *need, const struct audit_line *line)
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
        struct suggest_need *need;
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
        struct suggest_name *name, **found, key = {.host = *host};

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
