/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An audit record as its line of JSON. Pure. The fields and their order are those of INTERFACES.md, Audit record. */

#include <stddef.h>
#include <stdint.h>

#include "broker/audit.h"

/* Of what audit_record_head() writes. */
#define AUDIT_HEAD_MAX_BYTES 80u

/* Never less than what audit_record_body() will write. */
size_t audit_record_room(const struct audit_record *record);

/* All behind the head, the closing brace and the newline included; answers the bytes written. No NUL. */
size_t audit_record_body(const struct audit_record *record, char *to);

/* `{"seq":N,"ts":"..."`; known when the record is written. */
size_t audit_record_head(uint64_t seq, uint64_t realtime_ns, char to[AUDIT_HEAD_MAX_BYTES]);

/* The seq of a line that audit_record_head() began. 0 or -EBADMSG. */
int audit_record_seq(const char *line, size_t n, uint64_t *ret);

const char *audit_event_name(enum audit_event event);
