/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_filter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker/audit_record.h"
#include "broker/reason.h"
#include "proto/base/parse.h"

int audit_parse_host(const char *text, struct hostname *ret)
{
        size_t n = strlen(text);

        if (hostname_parse_address(text, n, ret) == 0 || hostname_parse(text, n, ret) == 0)
                return 0;
        return -EBADMSG;
}

/* Wider than a policy's: here `*.com` is a fair question. */
static int parse_pattern(const char *text, struct pattern *ret)
{
        struct pattern p = {.kind = PATTERN_EXACT};
        struct hostname host;

        if (prefix_parse(text, strlen(text), &p.prefix) == 0) {
                p.kind = PATTERN_PREFIX;
                *ret = p;
                return 0;
        }
        if (strncmp(text, "**.", 3) == 0)
                p.kind = PATTERN_BELOW_AND_SELF;
        else if (strncmp(text, "*.", 2) == 0)
                p.kind = PATTERN_BELOW;
        text += p.kind == PATTERN_BELOW_AND_SELF ? 3 : p.kind == PATTERN_BELOW ? 2 : 0;
        if (audit_parse_host(text, &host) < 0 || host.kind != HOST_NAME)
                return -EINVAL;
        memcpy(p.name, host.text, host.length + 1u);
        p.name_n = host.length;
        *ret = p;
        return 0;
}

static const char *reason_at(size_t i)
{
        return i < REASON_MAX_ ? reason_info((enum reason)i)->name : NULL;
}

static const char *event_at(size_t i)
{
        return i < AUDIT_EVENT_MAX_ ? audit_event_name((enum audit_event)i) : NULL;
}

static const char *decision_at(size_t i)
{
        static const char *const names[] = {"allow", "deny", NULL};

        return names[i];
}

static bool is_one_of(const char *text, const char *(*name_at)(size_t i))
{
        for (size_t i = 0; name_at(i); i++)
                if (strcmp(text, name_at(i)) == 0)
                        return true;
        return false;
}

/* Digits where the form has 0, the form's own characters elsewhere; answers how much of the form there is. */
static size_t match_form(const char *text, const char *form)
{
        size_t n = 0;

        for (; text[n] && form[n]; n++)
                if (form[n] == '0' ? text[n] < '0' || text[n] > '9' : text[n] != form[n])
                        break;
        return n;
}

int audit_parse_time(const char *text, uint64_t now_ns, uint64_t *ret_ns)
{
        static const char form[] = "0000-00-00T00:00:00.000000", least[] = "0000-01-01T00:00:00.000000Z";
        size_t n = match_form(text, form), end = n + (text[n] == 'Z');
        char whole[sizeof(least)];
        uint64_t ago_ms;

        if (parse_duration_ms(text, &ago_ms) == 0) {
                uint64_t ago_ns = ago_ms * NSEC_PER_MSEC;

                *ret_ns = ago_ns < now_ns ? now_ns - ago_ns : 0;
                return 0;
        }
        /* A whole day, minute or second, or a fraction of one. */
        if (text[end] || (n != 10 && n != 16 && n != 19 && n < 21))
                return -EINVAL;
        memcpy(whole, least, sizeof(least));
        memcpy(whole, text, n);
        return audit_line_parse_time(whole, ret_ns) == 0 ? 0 : -EINVAL;
}

static int say(char *ret_error, const char *what, const char *text)
{
        (void)snprintf(ret_error, AUDIT_FILTER_ERROR_BYTES, "%s, not '%.100s'", what, text);
        return -EINVAL;
}

int audit_filter_prepare(struct audit_filter *f, uint64_t now_ns, char ret_error[AUDIT_FILTER_ERROR_BYTES])
{
        if (f->event && !is_one_of(f->event, event_at))
                return say(ret_error, "--event wants an event's name, such as egress_deny", f->event);
        if (f->decision && !is_one_of(f->decision, decision_at))
                return say(ret_error, "--decision is allow or deny", f->decision);
        if (f->reason && !is_one_of(f->reason, reason_at))
                return say(ret_error, "--reason wants a reason's name, such as no_rule", f->reason);
        if (f->since && audit_parse_time(f->since, now_ns, &f->since_ns) < 0)
                return say(ret_error, "--since wants a time such as 2026-01-02T03:04:05Z, or 15m for that long ago",
                        f->since);
        if (f->until && audit_parse_time(f->until, now_ns, &f->until_ns) < 0)
                return say(ret_error, "--until wants a time such as 2026-01-02T03:04:05Z, or 15m for that long ago",
                        f->until);
        f->has_pattern = f->host && parse_pattern(f->host, &f->pattern) == 0;
        if (f->host && !f->has_pattern)
                return say(ret_error, "--host wants a name, *.NAME, **.NAME, an address or a CIDR", f->host);
        return 0;
}

static bool passes_vm(const struct audit_filter *f, const struct audit_line *line)
{
        for (size_t i = 0; i < f->vms.n; i++)
                if (line->vm && strcmp(line->vm, f->vms.items[i]) == 0)
                        return true;
        return f->vms.n == 0;
}

static bool passes_decision(const struct audit_filter *f, const struct audit_line *line)
{
        if (f->reason && (!line->has_decision || strcmp(reason_info(line->reason)->name, f->reason) != 0))
                return false;
        if (!f->decision)
                return true;
        return line->has_decision && (line->reason == REASON_ALLOWED) == (strcmp(f->decision, "allow") == 0);
}

static bool passes_host(const struct audit_filter *f, const struct audit_line *line)
{
        struct hostname host;

        if (!f->has_pattern)
                return true;
        return line->host && audit_parse_host(line->host, &host) == 0 && pattern_matches(&f->pattern, &host);
}

bool audit_filter_passes(const struct audit_filter *f, const struct audit_line *line)
{
        return passes_vm(f, line) && (!f->event || strcmp(audit_event_name(line->event), f->event) == 0) &&
               passes_decision(f, line) && passes_host(f, line) && line->ts_ns >= f->since_ns &&
               (!f->until_ns || line->ts_ns < f->until_ns);
}
