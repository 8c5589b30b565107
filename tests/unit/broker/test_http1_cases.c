/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_requests.json against the pure parsers: each case's bytes are read as the broker would read them, and what a
 * parser can decide (malformed_request, host_mismatch, protocol_not_allowed, what is forwarded) must be what the case
 * expects. What policy, resolver and time decide is taken from the case as given. Every stream is read whole, in pieces
 * of 7, and byte by byte.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/client_hello.h"
#include "broker/http1.h"
#include "broker/http1_body.h"
#include "tests/support/cases.h"
#include "tests/support/wire_bytes.h"

/* The stream of one case as it is read. */
struct stream {
        const json_t *c;
        const uint8_t *bytes;
        size_t n;
        size_t at;
        size_t piece;   /* how many bytes are fed at a time */
        size_t answer;  /* which of the expected answers is next */
        size_t request; /* which of the requests that the origin sees is next */
        struct http1_request *r;
        struct http1_context context;
        struct hostname target;
};

/* The i-th expected answer; NULL behind the last. */
static const json_t *answer(const struct stream *s)
{
        const json_t *expect = json_object_get(s->c, "expect");
        const json_t *responses = json_object_get(expect, "responses");

        if (responses)
                return json_array_get(responses, s->answer);
        return s->answer ? NULL : expect;
}

static bool expects_reason(const json_t *expected, const char *reason)
{
        return case_is_one_of(expected, "reason", reason);
}

static bool has_status(const json_t *expected, json_int_t status)
{
        const json_t *want = json_object_get(expected, "status");

        if (json_is_integer(want))
                return json_integer_value(want) == status;
        for (size_t i = 0; i < json_array_size(want); i++)
                if (json_integer_value(json_array_get(want, i)) == status)
                        return true;
        return false;
}

/* Paths are judged by the policy, which has the rules. */
static bool decided_by_policy(const struct stream *s)
{
        return !strncmp(case_text(s->c, "id"), "path-traversal", strlen("path-traversal"));
}

static int feed(struct stream *s)
{
        int r = HTTP1_E_MORE;

        http1_request_init(s->r, &s->context);
        while (s->at < s->n && r == HTTP1_E_MORE) {
                size_t k = s->n - s->at < s->piece ? s->n - s->at : s->piece, taken;

                r = http1_request_feed(s->r, s->bytes + s->at, k, &taken);
                s->at += taken;
        }
        return r;
}

/* Reads the request's body from the stream and gives it decoded. */
static enum http1_body_event feed_body(struct stream *s, uint8_t *body, size_t *ret_n)
{
        enum http1_body_event event = HTTP1_BODY_MORE;
        struct http1_body b;
        size_t written = 0;

        http1_body_init(&b, s->r->framing, s->r->length_bytes);
        for (;;) {
                size_t k = s->n - s->at < s->piece ? s->n - s->at : s->piece, taken, n;

                event = http1_body_transfer(
                        &b, s->bytes + s->at, k, &taken, false, body + written, s->n + 64 - written, &n);
                s->at += taken;
                written += n;
                if (event == HTTP1_BODY_END || event == HTTP1_BODY_MALFORMED || (!taken && s->at == s->n))
                        break;
        }
        *ret_n = written;
        return event;
}

/* The value of a field in a written head, or NULL. */
static char *field_of(const char *head, const char *name)
{
        size_t n = strlen(name);

        for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
                line += 2;
                if (!strncasecmp(line, name, n) && line[n] == ':' && line[n + 1] == ' ')
                        return strndup(line + n + 2, strcspn(line + n + 2, "\r"));
        }
        return NULL;
}

/* JSON has Latin-1 as UTF-8, the head has the bytes. */
static bool same_latin1(const char *bytes, const char *utf8)
{
        for (; *bytes && *utf8; bytes++, utf8++) {
                unsigned point = (unsigned char)*utf8;

                if (point >= 0xc0 && utf8[1])
                        point = (point & 0x1fu) << 6 | ((unsigned char)*++utf8 & 0x3fu);
                if ((unsigned char)*bytes != point)
                        return false;
        }
        return !*bytes && !*utf8;
}

static bool field_is(const char *head, const char *name, const char *want)
{
        char *value = field_of(head, name);
        bool same = value && same_latin1(value, want);

        free(value);
        return same;
}

static void check_fields(const struct stream *s, const json_t *seen, const char *head)
{
        const char *name;
        const json_t *value;
        char *found;

        json_object_foreach (json_object_get(seen, "headers"), name, value)
                CASE_CHECK(s->c, field_is(head, name, json_string_value(value)));
        for (size_t i = 0; i < json_array_size(json_object_get(seen, "absent")); i++) {
                found = field_of(head, json_string_value(json_array_get(json_object_get(seen, "absent"), i)));
                CASE_CHECK(s->c, !found);
                free(found);
        }
        found = field_of(head, "keep-alive");
        CASE_CHECK(s->c, !found);
        free(found);
}

/* What is written for the origin is what the case says that it sees. */
static void check_forwarded(struct stream *s, const uint8_t *body, size_t body_n)
{
        const json_t *expect = json_object_get(s->c, "expect");
        const json_t *seen =
                json_array_get(json_object_get(json_object_get(expect, "upstream_sees"), "requests"), s->request++);
        char head[HTTP1_FORWARD_MAX_BYTES + 1], line[HTTP1_FORWARD_MAX_BYTES];

        if (!seen)
                return;
        head[http1_request_write(s->r, false, head, HTTP1_FORWARD_MAX_BYTES)] = '\0';
        (void)snprintf(line, sizeof(line), "%s %s HTTP/1.1\r\n", case_text(seen, "method"), case_text(seen, "target"));
        CASE_CHECK(s->c, !strncmp(head, line, strlen(line)));
        CASE_CHECK(s->c, field_is(head, "host", case_text(seen, "host")));
        check_fields(s, seen, head);

        size_t want_n;
        uint8_t *want = wire_bytes(seen, "body", &want_n);

        CASE_CHECK(s->c, want && want_n == body_n && !memcmp(want, body, body_n));
        free(want);
}

/* The target that the answer and the audit name, also after a refusal. */
static void check_target(const struct stream *s, const json_t *expected)
{
        const char *host = case_text(expected, "host");
        json_int_t port = json_integer_value(json_object_get(expected, "port"));

        if (host && json_is_string(json_object_get(expected, "reason"))) {
                CASE_CHECK(s->c, s->r->has_target && !strcmp(s->r->host.text, host));
                CASE_CHECK(s->c, !port || s->r->port == port);
        }
}

/* A refusal is one that the case expects, or one that it leaves open. */
static void check_refusal(const struct stream *s, const json_t *expected)
{
        const char *reason = reason_info(s->r->refusal.reason)->name;
        const char *inner = case_text(json_object_get(s->c, "expect"), "inner");

        if (inner) {
                CASE_CHECK(s->c, !strcmp(reason, inner));
        } else if (json_object_get(expected, "reason")) {
                CASE_CHECK(s->c, expects_reason(expected, reason));
                check_target(s, expected);
        } else {
                CASE_CHECK(s->c, has_status(expected, 400));
        }
        CASE_CHECK(s->c, s->r->refusal.detail && *s->r->refusal.detail);
}

static bool has_tls_step(const json_t *c)
{
        const json_t *chunks = json_object_get(c, "chunks");

        for (size_t i = 0; i < json_array_size(chunks); i++)
                if (json_object_get(json_array_get(chunks, i), "tls"))
                        return true;
        return false;
}

/* Whether the stream goes on behind a CONNECT as HTTP that the parser sees. */
static bool enter_tunnel(struct stream *s)
{
        const json_t *expect = json_object_get(s->c, "expect");
        const char *inner = case_text(expect, "inner");
        bool opaque = strstr(s->r->host.text, "tcp.example.org") || has_tls_step(s->c);

        if (!has_status(answer(s), 200) || opaque || s->at == s->n || strstr(s->r->host.text, "tls.example.org"))
                return false;
        if (inner && first_byte_of(s->bytes[s->at]) == FIRST_BYTE_OTHER) {
                CASE_CHECK(s->c, !strcmp(inner, "protocol_not_allowed"));
                return false;
        }
        s->target = s->r->host;
        s->context =
                (struct http1_context){.place = HTTP1_IN_TUNNEL, .host = &s->target, .port = s->r->port, .first = true};
        s->answer++;
        return true;
}

/* A request that is no CONNECT and whose head is right. false: nothing more is parsed. */
static bool take_request(struct stream *s, const json_t *expected)
{
        uint8_t *body = malloc(s->n + 64);
        size_t body_n;
        bool on;

        check_target(s, expected);
        switch (feed_body(s, body, &body_n)) {
        case HTTP1_BODY_END:
                CASE_CHECK(s->c, decided_by_policy(s) || !expects_reason(expected, "malformed_request") ||
                                         expects_reason(expected, "path_not_allowed"));
                if (!json_object_get(expected, "reason"))
                        check_forwarded(s, body, body_n);
                on = !has_status(expected, 101);
                break;
        case HTTP1_BODY_MALFORMED:
                CASE_CHECK(s->c, expects_reason(expected, "malformed_request") || has_status(expected, 400));
                on = false;
                break;
        case HTTP1_BODY_MORE:
        case HTTP1_BODY_DATA:
        default:
                CASE_CHECK(
                        s->c, !json_object_get(expected, "reason") || !expects_reason(expected, "malformed_request"));
                on = false;
        }
        free(body);
        s->answer++;
        s->context.first = false;
        return on;
}

static bool take_one(struct stream *s)
{
        const json_t *expected;
        int r = feed(s);

        expected = answer(s);
        if (r == HTTP1_E_MORE) {
                CASE_CHECK(s->c, !expected || !expects_reason(expected, "malformed_request"));
                return false;
        }
        CASE_CHECK(s->c, expected || json_object_get(json_object_get(s->c, "expect"), "inner"));
        if (r == HTTP1_E_REFUSED) {
                check_refusal(s, expected);
                return false;
        }
        if (!s->r->connect)
                return take_request(s, expected);
        CASE_CHECK(s->c, !expects_reason(expected, "malformed_request") && !expects_reason(expected, "host_mismatch"));
        check_target(s, expected);
        return enter_tunnel(s);
}

static void read_case(const json_t *c, size_t piece)
{
        struct stream s = {.c = c, .piece = piece, .context = {.place = HTTP1_AT_PROXY}};
        uint8_t *bytes = wire_bytes(c, "bytes", &s.n);

        s.bytes = bytes;
        s.r = malloc(sizeof(*s.r));
        while (s.at < s.n && take_one(&s))
                ;
        free(s.r);
        free(bytes);
}

static void test_cases_whole(void)
{
        CASES_FOREACH ("http_requests.json", c)
                read_case(c, SIZE_MAX);
}

static void test_cases_in_sevens(void)
{
        CASES_FOREACH ("http_requests.json", c)
                read_case(c, 7);
}

static void test_cases_by_byte(void)
{
        CASES_FOREACH ("http_requests.json", c)
                read_case(c, 1);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the handed cases, whole", test_cases_whole},
                {"the handed cases, in pieces of seven", test_cases_in_sevens},
                {"the handed cases, byte by byte", test_cases_by_byte},
                CU_TEST_INFO_NULL,
        };

        return cases_run("http1_cases", tests);
}
