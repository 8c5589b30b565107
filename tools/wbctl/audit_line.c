/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_line.h"

#include <string.h>
#include <time.h>

#include "proto/base/clock.h"

static const struct {
        const char *key;
        size_t offset;
} texts[] = {
        {"ts", offsetof(struct audit_line, ts)},
        {"vm", offsetof(struct audit_line, vm)},
        {"host", offsetof(struct audit_line, host)},
        {"addr", offsetof(struct audit_line, addr)},
        {"method", offsetof(struct audit_line, method)},
        {"path", offsetof(struct audit_line, path)},
        {"policy", offsetof(struct audit_line, policy)},
        {"detail", offsetof(struct audit_line, detail)},
        {"hash", offsetof(struct audit_line, hash)},
};

static const struct {
        const char *key;
        size_t offset;
} numbers[] = {
        {"seq", offsetof(struct audit_line, seq)},
        {"gen", offsetof(struct audit_line, gen)},
        {"session", offsetof(struct audit_line, session)},
        {"status", offsetof(struct audit_line, status)},
        {"bytes_up", offsetof(struct audit_line, bytes_up)},
        {"bytes_down", offsetof(struct audit_line, bytes_down)},
        {"duration_ms", offsetof(struct audit_line, duration_ms)},
};

/* Digits alone, so that no sign and no space is taken for one. */
static bool take_digits(const char **text, size_t n, int *ret)
{
        int value = 0;

        for (size_t i = 0; i < n; i++) {
                char c = (*text)[i];

                if (c < '0' || c > '9')
                        return false;
                value = value * 10 + (c - '0');
        }
        *text += n;
        *ret = value;
        return true;
}

static bool take_char(const char **text, char c)
{
        if (**text != c)
                return false;
        (*text)++;
        return true;
}

int audit_line_parse_time(const char *text, uint64_t *ret_ns)
{
        struct tm tm = {0}, same;
        int year, month, microseconds = 0;
        time_t seconds;

        if (!take_digits(&text, 4, &year) || !take_char(&text, '-') || !take_digits(&text, 2, &month) ||
                !take_char(&text, '-') || !take_digits(&text, 2, &tm.tm_mday) || !take_char(&text, 'T') ||
                !take_digits(&text, 2, &tm.tm_hour) || !take_char(&text, ':') || !take_digits(&text, 2, &tm.tm_min) ||
                !take_char(&text, ':') || !take_digits(&text, 2, &tm.tm_sec))
                return AUDIT_LINE_E_MALFORMED;
        if (take_char(&text, '.') && !take_digits(&text, 6, &microseconds))
                return AUDIT_LINE_E_MALFORMED;
        if (!take_char(&text, 'Z') || *text)
                return AUDIT_LINE_E_MALFORMED;
        tm.tm_year = year - 1900;
        tm.tm_mon = month - 1;
        same = tm;
        seconds = timegm(&same); /* it makes the 32nd of a month the first of the next */
        if (year < 1970 || same.tm_mon != tm.tm_mon || same.tm_mday != tm.tm_mday || same.tm_hour != tm.tm_hour ||
                same.tm_min != tm.tm_min || same.tm_sec != tm.tm_sec)
                return AUDIT_LINE_E_MALFORMED;
        *ret_ns = (uint64_t)seconds * NSEC_PER_SEC + (uint64_t)microseconds * NSEC_PER_USEC;
        return 0;
}

static bool take_texts(struct audit_line *line)
{
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
                const json_t *value = json_object_get(line->record, texts[i].key);

                if (value && !json_is_string(value))
                        return false;
                *(const char **)(void *)((char *)line + texts[i].offset) = json_string_value(value);
        }
        return true;
}

static bool take_numbers(struct audit_line *line)
{
        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
                const json_t *value = json_object_get(line->record, numbers[i].key);

                if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
                        return false;
                *(uint64_t *)(void *)((char *)line + numbers[i].offset) = (uint64_t)json_integer_value(value);
        }
        return true;
}

/* A number from 0 to most, or `absent`. */
static bool take_small(const struct audit_line *line, const char *key, int most, int absent, int *ret)
{
        const json_t *value = json_object_get(line->record, key);
        json_int_t number = value ? json_integer_value(value) : absent;

        if (value && (!json_is_integer(value) || number < 0 || number > most))
                return false;
        *ret = (int)number;
        return true;
}

/* The functions find_*() answer the number of a word, or -1. */
static int find_event(const char *text)
{
        for (int i = 0; i < AUDIT_EVENT_MAX_; i++)
                if (strcmp(text, audit_event_name((enum audit_event)i)) == 0)
                        return i;
        return -1;
}

static int find_reason(const char *text)
{
        for (int i = 0; i < REASON_MAX_; i++)
                if (strcmp(text, reason_info((enum reason)i)->name) == 0)
                        return i;
        return -1;
}

static int find_via(const char *text)
{
        for (int i = 0; i < VIA_MAX_; i++)
                if (strcmp(text, via_name((enum via)i)) == 0)
                        return i;
        return -1;
}

/* A word that must be one of ours where it is there at all. */
static bool take_word(
        const struct audit_line *line, const char *key, int (*find)(const char *text), bool *ret_has, int *ret)
{
        const json_t *value = json_object_get(line->record, key);

        *ret_has = value != NULL;
        *ret = json_is_string(value) ? find(json_string_value(value)) : -1;
        return !value || *ret >= 0;
}

static bool take_words(struct audit_line *line)
{
        const json_t *decision = json_object_get(line->record, "decision");
        const char *text = json_string_value(decision);
        int event, reason, via;
        bool has_event, has_reason;

        if (!take_word(line, "event", find_event, &has_event, &event) || !has_event ||
                !take_word(line, "reason", find_reason, &has_reason, &reason) ||
                !take_word(line, "via", find_via, &line->has_via, &via))
                return false;
        /* The two go together: a line cannot say allow and be a denial. */
        if (has_reason != (decision != NULL))
                return false;
        if (decision && (!text || strcmp(text, reason == REASON_ALLOWED ? "allow" : "deny") != 0))
                return false;
        line->event = (enum audit_event)event;
        line->has_decision = has_reason;
        line->reason = has_reason ? (enum reason)reason : REASON_ALLOWED;
        line->via = line->has_via ? (enum via)via : VIA_CONNECT;
        return true;
}

int audit_line_parse(const char *text, size_t n, struct audit_line *ret)
{
        struct audit_line line = {0};
        int port;

        if (n > AUDIT_LINE_MAX_BYTES)
                return AUDIT_LINE_E_MALFORMED;
        line.record = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(line.record) || !take_texts(&line) || !take_numbers(&line) || !take_words(&line) ||
                !take_small(&line, "port", UINT16_MAX, 0, &port) ||
                !take_small(&line, "rule", INT32_MAX, -1, &line.rule) || !json_object_get(line.record, "seq") ||
                !line.ts || audit_line_parse_time(line.ts, &line.ts_ns) != 0) {
                audit_line_done(&line);
                return AUDIT_LINE_E_MALFORMED;
        }
        line.port = (uint16_t)port;
        *ret = line;
        return 0;
}

void audit_line_done(struct audit_line *line)
{
        json_decref(line->record);
        line->record = NULL;
}
