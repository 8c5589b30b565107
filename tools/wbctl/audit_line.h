/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One line of an audit log (INTERFACES.md, Audit record) as a struct, for the commands that read logs. The log may come
 * from another machine and from anybody: what is not as the broker writes it is refused. Pure.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/audit.h"
#include "broker/audit_record.h" /* AUDIT_LINE_MAX_BYTES: a longer line is none of ours */

/* Texts are NULL and numbers 0 where the field is absent. Texts are the record's: they live until audit_line_done(). */
struct audit_line {
        json_t *record; /* with all fields, also those that are not below */
        uint64_t seq;
        uint64_t ts_ns; /* since 1970 */
        enum audit_event event;
        bool has_decision;
        enum reason reason; /* REASON_ALLOWED exactly where decision is "allow" */
        int rule;           /* -1: absent */
        bool has_via;
        enum via via;
        uint16_t port;
        uint64_t gen, session, status, bytes_up, bytes_down, duration_ms;
        const char *ts, *vm, *host, *addr, *method, *path, *policy, *detail, *hash;
};

/*
 * 0, or AUDIT_LINE_E_MALFORMED: longer than AUDIT_LINE_MAX_BYTES, no JSON object, a key twice, a field of another type
 * or out of range, an event, reason or via that the broker does not write, or no seq, ts or event. Unknown fields are
 * let be. text needs no NUL.
 */
#define AUDIT_LINE_E_MALFORMED 1
int audit_line_parse(const char *text, size_t n, struct audit_line *ret);
void audit_line_done(struct audit_line *line);

/* "2026-01-02T03:04:05.678901Z" (also without the fraction), as the log writes it. 0 or AUDIT_LINE_E_MALFORMED. */
int audit_line_parse_time(const char *text, uint64_t *ret_ns);
