/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The parsers' common half, private to http1*.c: lines and fields of a head, what Connection, Content-Length,
 * Transfer-Encoding and Upgrade say in it, and writing one. A refusal is a static text for a person; the caller knows
 * the reason.
 */

#include "broker/http1.h"

/* For an answer to a person: what was refused, as a static text. */
#define HTTP1_REFUSAL(r, d) ((struct http1_refusal){.reason = (r), .detail = (d)})

enum http1_field_id {
        FIELD_OTHER,
        FIELD_HOST,
        FIELD_CONTENT_LENGTH,
        FIELD_TRANSFER_ENCODING,
        FIELD_CONNECTION,
        FIELD_UPGRADE,
        FIELD_EXPECT,
        FIELD_WB_VIA,     /* of the agent's own CONNECT, for the record */
        FIELD_HOP_BY_HOP, /* never forwarded */
};

enum http1_head_event {
        HEAD_MORE,
        HEAD_FIRST_LINE, /* http1_head_first_line(); feed on */
        HEAD_COMPLETE,
        HEAD_REFUSED,
};

/* empty_lines: those before the first line are skipped (RFC 9112 2.2). */
void http1_head_init(struct http1_head *h, bool empty_lines);
enum http1_head_event http1_head_feed(
        struct http1_head *h, const uint8_t *bytes, size_t n, size_t *ret_taken, const char **ret_detail);

/* Empty lines aside, has a byte come? */
bool http1_head_begun(const struct http1_head *h);

/* The first line: at HEAD_FIRST_LINE without its CR LF and NUL-terminated; at an earlier HEAD_REFUSED as far as it
 * came. */
char *http1_head_first_line(struct http1_head *h, size_t *ret_n);

/* "1.0" or "1.1" behind "HTTP/", case-sensitive. */
bool http1_version(const char *text, size_t n, bool *ret_http10);

/* How many fields have this id; *ret_value is the last one's value, untouched where there is none. */
size_t http1_head_count(const struct http1_head *h, enum http1_field_id id, const char **ret_value);

/* Each of these: NULL, or why the head is refused. */
const char *http1_head_framing(
        const struct http1_head *h, bool http10, enum http1_framing *ret_framing, uint64_t *ret_length_bytes);

/* Drops the fields that Connection names. What it names that we rebuild (Host, the framing) is not lost by that. */
struct http1_connection {
        bool close;
        bool upgrade;
};
const char *http1_head_connection(struct http1_head *h, struct http1_connection *ret);

/* Is websocket among the protocols that Upgrade lists? */
bool http1_head_has_websocket(const struct http1_head *h);

void http1_head_drop(struct http1_head *h, enum http1_field_id id);

/* Text that grows in a caller's room; used never exceeds it, since HTTP1_FORWARD_MAX_BYTES is enough. */
struct http1_text {
        char *to;
        size_t room;
        size_t used;
};

void http1_put(struct http1_text *t, const char *bytes, size_t n);
void http1_puts(struct http1_text *t, const char *text);
void http1_put_number(struct http1_text *t, uint64_t number);
void http1_put_fields(struct http1_text *t, const struct http1_head *h);
void http1_put_framing(struct http1_text *t, enum http1_framing framing, uint64_t length_bytes);
/* Connection, Upgrade and the empty line. */
void http1_put_end(struct http1_text *t, bool upgrade, bool close);
