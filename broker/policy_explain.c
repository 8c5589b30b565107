/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "broker/policy.h"

#define LIST_MOST  8u /* ports, methods or paths that are told */
#define TEXT_BYTES 80 /* of a path or a method */

/* A text that is cut where its room ends. */
struct say {
        char *at;
        size_t left; /* with the NUL */
};

static void say(struct say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct say *s, const char *format, ...)
{
        va_list ap;
        int n;

        va_start(ap, format);
        n = vsnprintf(s->at, s->left, format, ap);
        va_end(ap);
        if (n < 0 || s->left == 0)
                return;
        if ((size_t)n >= s->left)
                n = (int)s->left - 1;
        s->at += n;
        s->left -= (size_t)n;
}

/* What a client sent, without what could end a quotation or forge a line. */
static void say_text(struct say *s, const char *text)
{
        size_t n = 0;

        for (; n < TEXT_BYTES && text[n]; n++)
                say(s, "%c", text[n] > 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\' ? text[n] : '?');
        if (text[n])
                say(s, "...");
}

/* The YAML of a list as it would have to be, the new member last; a long one is not repeated. */
static void say_ports(struct say *s, const struct policy_rule *rule, uint16_t new)
{
        say(s, "ports: [");
        for (size_t i = 0; i < rule->ports_n && i < LIST_MOST; i++)
                say(s, "%u, ", rule->ports[i]);
        say(s, "%s%u]", rule->ports_n > LIST_MOST ? "..., " : "", new);
}

static void say_texts(struct say *s, const char *key, char *const *texts, size_t n, const char *new)
{
        say(s, "%s: [", key);
        for (size_t i = 0; i < n && i < LIST_MOST; i++) {
                say(s, "\"");
                say_text(s, texts[i]);
                say(s, "\", ");
        }
        say(s, "%s\"", n > LIST_MOST ? "..., " : "");
        say_text(s, new);
        say(s, "\"]");
}

static void say_rule(struct say *s, const struct policy *policy, int index)
{
        const struct policy_rule *rule = &policy->rules[index];
        char pattern[PATTERN_TEXT_BYTES];

        pattern_format(&rule->pattern, pattern);
        say(s, "rule %d (line %u, %s)", index, rule->line, pattern);
}

static void say_target(struct say *s, const struct request *request)
{
        bool is_v6 = request->host.kind == HOST_IPV6;

        say(s, "%s%s%s", is_v6 ? "[" : "", request->host.text, is_v6 ? "]" : "");
        if (request->port)
                say(s, ":%u", request->port);
}

/* Ports of what is neither TLS nor HTTP, or where the server speaks first (IANA's names in their order): ftp, ssh,
 * telnet, smtp, pop3, imap, ldap, submission, ms-sql-s, mysql, ms-wbt-server, postgresql, amqp, redis, git, memcache,
 * mongodb. */
static bool is_opaque_port(uint16_t port)
{
        static const uint16_t ports[] = {
                21, 22, 23, 25, 110, 143, 389, 587, 1433, 3306, 3389, 5432, 5672, 6379, 9418, 11211, 27017};

        for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++)
                if (ports[i] == port)
                        return true;
        return false;
}

/* The line that would allow it. */
static void say_missing_rule(struct say *s, const struct request *request)
{
        say(s, "It would take a rule under egress_rules: - {pattern: \"%s\"", request->host.text);
        if (request->port && request->port != 80 && request->port != 443)
                say(s, ", ports: [%u]", request->port);
        if (request->protocol == PROTOCOL_TCP || (request->protocol == PROTOCOL_AUTO && is_opaque_port(request->port)))
                say(s, ", protocol: tcp");
        say(s, "}. ");
}

/* The allow rule that came closest: of the latest stage, the most specific. */
static int nearest_rule(const struct policy *policy, const struct request *request)
{
        enum policy_stage latest = STAGE_HOST;
        int nearest = DECISION_NO_RULE;

        for (size_t i = 0; i < policy->rules_n; i++) {
                const struct policy_rule *rule = &policy->rules[i];
                enum policy_stage stage = rule->deny ? STAGE_HOST : policy_rule_stage(rule, request);

                if (stage == STAGE_HOST || stage < latest)
                        continue;
                if (nearest < 0 || stage > latest ||
                        pattern_compare(&rule->pattern, &policy->rules[nearest].pattern) > 0) {
                        nearest = (int)i;
                        latest = stage;
                }
        }
        return nearest;
}

static void explain_allowed(struct say *s, const struct policy *policy, const struct decision *decision)
{
        if (decision->rule < 0) {
                say(s, "network: public allows what no rule speaks of.");
                return;
        }
        say(s, "Allowed by ");
        say_rule(s, policy, decision->rule);
        say(s, "%s.", decision->inspect ? "; TLS is intercepted, so that each request in it is judged" : "");
}

static void explain_floor(struct say *s, const struct request *request, const struct decision *decision)
{
        const char *floor = decision->floor ? decision->floor : "an address that is never reachable";

        if (decision->reason == REASON_FLOOR_ADDRESS && request->host.kind == HOST_NAME)
                say(s, "%s resolves to an address in the floor (%s)", request->host.text, floor);
        else
                say(s, "%s is in the floor (%s)", request->host.text, floor);
        say(s, ", which no policy can open. ");
}

/* A rule matches the host and stops at something else: say what it permits and what would have to stand there. */
static void explain_nearest(
        struct say *s, const struct policy *policy, const struct request *request, enum reason reason)
{
        int nearest = nearest_rule(policy, request);
        const struct policy_rule *rule;

        if (nearest < 0) {
                say_missing_rule(s, request);
                return;
        }
        rule = &policy->rules[nearest];
        say(s, "For %s, ", request->host.text);
        say_rule(s, policy, nearest);
        if (reason == REASON_PORT_NOT_ALLOWED) {
                say(s, " does not allow the port. ");
                if (is_opaque_port(request->port)) {
                        say_missing_rule(s, request);
                        return;
                }
                say(s, "It would take ");
                say_ports(s, rule, request->port);
                say(s, " there. ");
        } else if (reason == REASON_PROTOCOL_NOT_ALLOWED) {
                say(s, " allows protocol: %s, not %s. ", protocol_name(rule->protocol),
                        protocol_name(request->protocol));
                if (rule->protocol == PROTOCOL_TLS && request->protocol == PROTOCOL_HTTP)
                        say(s, "Use https. ");
                say(s, "It would take protocol: %s there. ", request->protocol == PROTOCOL_TCP ? "tcp" : "auto");
        } else if (reason == REASON_METHOD_NOT_ALLOWED) {
                say(s, " does not allow the method. It would take ");
                say_texts(s, "http_methods", rule->methods, rule->methods_n, request->method ? request->method : "");
                say(s, " there. ");
        } else if (reason == REASON_PATH_NOT_ALLOWED) {
                say(s, " does not allow the path. It would take ");
                say_texts(s, "http_paths", rule->paths, rule->paths_n, request->path ? request->path : "");
                say(s, " there. ");
        } else {
                say(s, " looks at methods or paths, for which TLS must be intercepted, and that is not available. "
                       "It would take a rule without http_methods and http_paths. ");
        }
}

static void explain_malformed(struct say *s, const struct request *request)
{
        if (request->path && request->host.length &&
                (request_path_is_ambiguous(request->path) || request_path_has_encoded_slash(request->path)))
                say(s,
                        "Rules for %s judge paths, and a path with a dot segment, a backslash or an encoded slash cannot be judged. "
                        "Send the plain path. ",
                        request->host.text);
        else
                say(s, "The request is malformed: its host, port, method, path or headers are not as HTTP and DNS write them. "
                       "No rule is asked. ");
}

/* Denials that come from the policy: no retry changes them. */
static bool explain_denied(
        struct say *s, const struct policy *policy, const struct request *request, const struct decision *decision)
{
        switch ((int)decision->reason) {
        case REASON_NETWORK_NONE:
                say(s, "This VM has no network: its policy says network: none, or nothing of network. "
                       "It would take network: allowlist_domain. ");
                say_missing_rule(s, request);
                return true;
        case REASON_NO_RULE:
                say(s, "No rule matches %s. ", request->host.text);
                say_missing_rule(s, request);
                return true;
        case REASON_IP_LITERAL:
                say(s, "No rule covers the address %s, and rules for names are not for addresses. Use the server's name. ",
                        request->host.text);
                say_missing_rule(s, request);
                return true;
        case REASON_DENY_RULE:
                say_target(s, request);
                say(s, " is denied by ");
                if (decision->rule >= 0)
                        say_rule(s, policy, decision->rule);
                say(s, ". No other rule can allow it while that one stands. ");
                return true;
        case REASON_PORT_NOT_ALLOWED:
        case REASON_PROTOCOL_NOT_ALLOWED:
        case REASON_METHOD_NOT_ALLOWED:
        case REASON_PATH_NOT_ALLOWED:
        case REASON_INSPECTION_REQUIRED: explain_nearest(s, policy, request, decision->reason); return true;
        case REASON_FLOOR_NAME:
        case REASON_FLOOR_ADDRESS: explain_floor(s, request, decision); return true;
        case REASON_MALFORMED_REQUEST: explain_malformed(s, request); return true;
        case REASON_SNI_MISSING:
        case REASON_SNI_MISMATCH:
        case REASON_HOST_MISMATCH:
                say(s, "%s: the connection is for %s, and TLS and HTTP inside of it must name just that. ",
                        reason_info(decision->reason)->title, request->host.text);
                return true;
        default: return false;
        }
}

/* What is no decision on the request: limits, the state of the VM, the network behind. */
static void explain_other(struct say *s, const struct decision *decision)
{
        say(s, "%s. ", reason_info(decision->reason)->title);
        switch ((int)decision->reason) {
        case REASON_RATE_LIMITED: say(s, "The policy limits requests_per_s: try again, more slowly."); break;
        case REASON_CONNECTION_LIMIT:
                say(s, "The policy limits max_connections: try again when others are closed.");
                break;
        case REASON_QUOTA_EXCEEDED:
                say(s, "The policy limits quota_bytes for the life of this VM: a retry will not help.");
                break;
        case REASON_NOT_READY: say(s, "Egress opens when it is: try again then."); break;
        case REASON_REVOKED:
        case REASON_ISOLATION_UNKNOWN:
        case REASON_ISOLATION_TOO_WEAK: say(s, "A retry will not help; ask who operates the broker."); break;
        case REASON_AUDIT_UNAVAILABLE: say(s, "Nothing passes unrecorded; ask who operates the broker."); break;
        default: say(s, "The policy allows the request; what failed lies behind the broker."); break;
        }
}

void policy_explain(const struct policy *policy, const struct request *request, const struct decision *decision,
        char *ret_text, size_t room)
{
        struct say s = {ret_text, room};

        if (room == 0)
                return;
        *ret_text = '\0';
        if (decision->reason == REASON_ALLOWED)
                explain_allowed(&s, policy, decision);
        else if (explain_denied(&s, policy, request, decision))
                say(&s, "A retry will not help.");
        else
                explain_other(&s, decision);
}
