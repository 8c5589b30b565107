/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An audit record as its line of JSON. Pure. The fields and their order are those of INTERFACES.md, Audit record.
 *
 * The chain. Every line ends in `,"hash":"HASH"}` and a newline, HASH being 64 lower-case hexadecimal digits: the
 * SHA-256 of
 *     the hash of the record before it, as its 64 digits (64 zeros before a log's first record),
 *     one newline (0x0a),
 *     the line's bytes from its `{` up to and without the last `,"hash":"`.
 * It runs on over rotations and restarts as seq does. By hand, a line and the hash before it given:
 *     printf '%s\n%s' "$before" "${line%,\"hash\":*}" | sha256sum
 */

#include <stddef.h>
#include <stdint.h>

#include "broker/audit.h"
#include "proto/base/sha256.h"

/* Of what audit_record_head() writes. */
#define AUDIT_HEAD_MAX_BYTES 80u

/* `,"hash":"`, the digits, `"}` and the newline. */
#define AUDIT_TAIL_BYTES 76u

/* Longer than any record: a path fills at most a request head (16 KiB), each byte at most six. */
#define AUDIT_LINE_MAX_BYTES (512u * 1024u)

struct audit_hash {
        uint8_t bytes[SHA256_BYTES];
};

/* Never less than what audit_record_body() will write. */
size_t audit_record_room(const struct audit_record *record);

/* All between the head and the tail; answers the bytes written. No NUL. */
size_t audit_record_body(const struct audit_record *record, char *to);

/* `{"seq":N,"ts":"..."`; known when the record is written. */
size_t audit_record_head(uint64_t seq, uint64_t realtime_ns, char to[AUDIT_HEAD_MAX_BYTES]);

/* The seq of a line that audit_record_head() began. 0 or -EBADMSG. */
int audit_record_seq(const char *line, size_t n, uint64_t *ret);

/* The hash of a record whose line is text up to its tail. 0 or -ENOTSUP (no SHA-256). */
int audit_record_hash(const struct audit_hash *before, const char *text, size_t n, struct audit_hash *ret);

/* AUDIT_TAIL_BYTES of them, without a NUL. */
void audit_record_tail(const struct audit_hash *hash, char *to);

/* A line without its newline, taken apart: *ret_n is its length up to the tail. 0 or -EBADMSG. */
int audit_record_split(const char *line, size_t n, size_t *ret_n, struct audit_hash *ret_hash);

/* 64 lower-case digits and nothing else. 0 or -EBADMSG. */
int audit_hash_parse(const char *text, size_t n, struct audit_hash *ret);

const char *audit_event_name(enum audit_event event);
