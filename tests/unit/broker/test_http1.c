/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of requests and answers beyond the handed cases (test_http1_cases.c): tables of what is refused and why, of
 * what is forwarded to the byte, and the limits at their edges. Each head is read whole and byte by byte.
 */
#include "broker/http1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

#define H "Host: a.example\r\n"

static struct http1_request request;
static struct http1_response response;
static char forwarded[HTTP1_FORWARD_MAX_BYTES + 1];

static const struct http1_context at_proxy = {.place = HTTP1_AT_PROXY};

static int read_request_in(const struct http1_context *context, const char *text, size_t n, size_t piece)
{
        int r = HTTP1_E_MORE;
        size_t taken;

        http1_request_init(&request, context);
        for (size_t at = 0; at < n && r == HTTP1_E_MORE; at += taken)
                r = http1_request_feed(&request, (const uint8_t *)text + at, n - at < piece ? n - at : piece, &taken);
        return r;
}

/* The verdict on a whole head, which must be the same byte by byte. */
static enum reason judge_in(const struct http1_context *context, const char *text, size_t n)
{
        int whole = read_request_in(context, text, n, SIZE_MAX);
        enum reason reason = request.refusal.reason;

        CU_ASSERT_EQUAL(read_request_in(context, text, n, 1), whole);
        CU_ASSERT_EQUAL(request.refusal.reason, reason);
        CU_ASSERT_NOT_EQUAL(whole, HTTP1_E_MORE);
        CU_ASSERT_EQUAL(whole == HTTP1_E_REFUSED, reason != REASON_ALLOWED);
        CU_ASSERT_EQUAL(whole == HTTP1_E_REFUSED, request.refusal.detail != NULL);
        return reason;
}

static enum reason judge(const char *text)
{
        return judge_in(&at_proxy, text, strlen(text));
}

static const char *forward(bool close)
{
        forwarded[http1_request_write(&request, close, forwarded, HTTP1_FORWARD_MAX_BYTES)] = '\0';
        return forwarded;
}

/* A tunnel to a.example:80, or with TLS intercepted to a.example:443. */
static struct http1_context tunnel(bool tls, bool first)
{
        static struct hostname host;

        CU_ASSERT_FALSE_FATAL(hostname_parse("a.example", 9, &host));
        return (struct http1_context){
                .place = HTTP1_IN_TUNNEL, .host = &host, .port = tls ? 443 : 80, .tls = tls, .first = first};
}

static enum reason judge_in_tunnel(bool tls, bool first, const char *text)
{
        struct http1_context context = tunnel(tls, first);

        return judge_in(&context, text, strlen(text));
}

static void test_refused_at_the_proxy(void)
{
        static const struct {
                const char *text;
                enum reason reason;
        } refused[] = {
                /* the request line */
                {"GET http://a.example/\tHTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.2\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1x\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/01.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET  HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"http://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET /http://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET //a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http:a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example:/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example\x7f/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example#f HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET ws://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"CONNECT http://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"CONNECT a.example:443?q HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"\r\n\nGET http://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {"\r\r\nGET http://a.example/ HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                /* fields */
                {"GET http://a.example/ HTTP/1.1\r\n" H "A : b\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "A\t: b\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "\tA: b\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "A(b): c\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "A: b\x7f\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "A: b\r\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "A: b\r\n\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\n" H "Connection: a b\r\n\r\n", REASON_MALFORMED_REQUEST},
                /* Host */
                {"GET http://a.example/ HTTP/1.1\r\nHOST: a.example\r\nhost: a.example\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.0\r\n" H H "\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.0\r\nHost: b.example\r\n\r\n", REASON_HOST_MISMATCH},
                {"GET http://a.example/ HTTP/1.1\r\nHost: user@a.example\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\nHost: a.example:\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"GET http://a.example/ HTTP/1.1\r\nHost: a.example:443\r\n\r\n", REASON_HOST_MISMATCH},
                {"GET http://a.example:443/ HTTP/1.1\r\nHost: a.example\r\n\r\n", REASON_HOST_MISMATCH},
                {"CONNECT a.example:443 HTTP/1.1\r\nHost: aa.example\r\n\r\n", REASON_HOST_MISMATCH},
                /* framing; it comes before a mismatch, since what is malformed cannot be read at all */
                {"POST http://a.example/ HTTP/1.1\r\nHost: b.example\r\nContent-Length: x\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Content-Length: 9223372036854775808\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"POST http://a.example/ HTTP/1.1\r\n" H "content-length: 1\r\nCONTENT-LENGTH: 1\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Transfer-Encoding: chunked;q=1\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Transfer-Encoding: ,chunked\r\n\r\n",
                        REASON_MALFORMED_REQUEST},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n", REASON_MALFORMED_REQUEST},
                {"CONNECT a.example:443 HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", REASON_MALFORMED_REQUEST},
        };

        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
                CU_ASSERT_EQUAL(judge(refused[i].text), refused[i].reason);
}

/* Even a NUL, which no text can show. */
static void test_every_control_byte_is_refused(void)
{
        char head[] = "GET http://a.example/ HTTP/1.1\r\n" H "A: b*c\r\n\r\n";
        char *byte = strchr(head, '*');

        for (int c = 0; c < 256; c++) {
                bool control = (c < ' ' && c != '\t') || c == 0x7f;

                *byte = (char)c;
                CU_ASSERT_EQUAL(judge_in(&at_proxy, head, sizeof(head) - 1),
                        control ? REASON_MALFORMED_REQUEST : REASON_ALLOWED);
        }
}

static void test_forwarded_to_the_byte(void)
{
        static const struct {
                const char *text;
                const char *forwarded;
        } right[] = {
                {"GET http://A.example./p?q=1 HTTP/1.1\r\nAccept:*/*\r\nHOST:a.example:80\r\nX-b:  two words \t\r\n\r\n",
                        "GET /p?q=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nX-b: two words\r\n\r\n"},
                {"GET http://a.example:8080 HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n"},
                {"GET http://[2A0F::1]/ HTTP/1.1\r\nHost: [2a0f:0::1]\r\n\r\n",
                        "GET / HTTP/1.1\r\nHost: [2a0f::1]\r\n\r\n"},
                {"OPTIONS http://a.example? HTTP/1.1\r\n" H "\r\n", "OPTIONS /? HTTP/1.1\r\n" H "\r\n"},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Content-Length: 0005\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\n"},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n"},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"},
                /* what Connection names goes, but not what we rebuild */
                {"POST http://a.example/ HTTP/1.1\r\n" H
                 "Connection: Host, , content-LENGTH,x-Hop\r\nContent-Length: 2\r\nX-HOP: 1\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H
                 "X: 1\r\nConnection: x\r\nX: 2\r\nConnection: y\r\nY: 3\r\nZ: 4\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "Z: 4\r\n\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H
                 "TE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nproxy-authorization: b\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "\r\n"},
                /* upgrades: websocket alone, and only where it is one */
                {"GET http://a.example/ HTTP/1.1\r\n" H "Upgrade: WebSocket\r\nConnection: keep-alive, upgrade\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H
                 "Upgrade: h2c, websocket\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H
                 "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H "Upgrade: websocket\r\n\r\n", "GET / HTTP/1.1\r\n" H "\r\n"},
                {"GET http://a.example/ HTTP/1.1\r\n" H "Upgrade: websocket/13\r\nConnection: upgrade\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "\r\n"},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "\r\n"},
                {"GET http://a.example/ HTTP/1.0\r\n" H "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                        "GET / HTTP/1.1\r\n" H "\r\n"},
                {"POST http://a.example/ HTTP/1.1\r\n" H "Expect: 100-continue\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\n\r\n"},
                {"POST http://a.example/ HTTP/1.0\r\n" H "Expect: 100-continue\r\n\r\n",
                        "POST / HTTP/1.1\r\n" H "\r\n"},
        };

        for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
                CU_ASSERT_EQUAL(judge(right[i].text), REASON_ALLOWED);
                CU_ASSERT_STRING_EQUAL(forward(false), right[i].forwarded);
        }
}

static void test_close_is_said(void)
{
        CU_ASSERT_EQUAL(judge("GET http://a.example/ HTTP/1.1\r\n" H "\r\n"), REASON_ALLOWED);
        CU_ASSERT_STRING_EQUAL(forward(true), "GET / HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
}

static void test_what_is_known_of_a_request(void)
{
        CU_ASSERT_EQUAL(judge("PURGE http://a.example/a/b?c=d HTTP/1.1\r\n" H
                              "Expect: 100-Continue\r\nContent-Length: 7\r\n\r\n"),
                REASON_ALLOWED);
        CU_ASSERT_STRING_EQUAL(request.method, "PURGE");
        CU_ASSERT_STRING_EQUAL(request.path, "/a/b");
        CU_ASSERT_STRING_EQUAL(request.query, "c=d");
        CU_ASSERT_STRING_EQUAL(request.host.text, "a.example");
        CU_ASSERT_EQUAL(request.port, 80);
        CU_ASSERT_EQUAL(request.framing, HTTP1_FRAMING_LENGTH);
        CU_ASSERT_EQUAL(request.length_bytes, 7);
        CU_ASSERT_TRUE(request.keep_alive && request.expect_continue && !request.connect && !request.upgrade);

        CU_ASSERT_EQUAL(judge("CONNECT a.example:8443 HTTP/1.1\r\n" H "\r\n"), REASON_ALLOWED);
        CU_ASSERT_TRUE(request.connect && request.has_target);
        CU_ASSERT_EQUAL(request.port, 8443);
        CU_ASSERT_PTR_NULL(request.path);

        CU_ASSERT_EQUAL(judge("GET http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), REASON_ALLOWED);
        CU_ASSERT_FALSE(request.keep_alive);
        CU_ASSERT_EQUAL(judge("GET http://a.example/ HTTP/1.1\r\n" H "Connection: a, CLOSE\r\n\r\n"), REASON_ALLOWED);
        CU_ASSERT_FALSE(request.keep_alive);
}

/* A refusal's answer wants to know whether it has a body, and what host it is about. */
static void test_refusal_knows_method_and_target(void)
{
        CU_ASSERT_EQUAL(judge("HEAD http://a.example:81/ HTTP/1.1\r\nBad Header: x\r\n\r\n"), REASON_MALFORMED_REQUEST);
        CU_ASSERT_STRING_EQUAL(request.method, "HEAD");
        CU_ASSERT_TRUE(request.has_target);
        CU_ASSERT_EQUAL(request.port, 81);
        CU_ASSERT_EQUAL(judge("HEAD / HTTP/1.1\r\n" H "\r\n"), REASON_MALFORMED_REQUEST);
        CU_ASSERT_STRING_EQUAL(request.method, "HEAD");
        CU_ASSERT_FALSE(request.has_target);
}

static void test_in_the_tunnel(void)
{
        static const struct {
                bool tls;
                const char *text;
                enum reason reason;
        } requests[] = {
                {false, "GET /p HTTP/1.1\r\n" H "\r\n", REASON_ALLOWED},
                {true, "GET /p HTTP/1.1\r\n" H "\r\n", REASON_ALLOWED},
                {true, "GET /p HTTP/1.1\r\nHost: a.example:443\r\n\r\n", REASON_ALLOWED},
                {true, "GET /p HTTP/1.1\r\nHost: a.example:80\r\n\r\n", REASON_HOST_MISMATCH},
                {false, "GET /p HTTP/1.0\r\n\r\n", REASON_ALLOWED},
                {false, "GET /p HTTP/1.1\r\n\r\n", REASON_MALFORMED_REQUEST},
                {false, "OPTIONS * HTTP/1.1\r\n" H "\r\n", REASON_ALLOWED},
                {false, "GET * HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {false, "GET http://a.example/p HTTP/1.1\r\n" H "\r\n", REASON_ALLOWED},
                {true, "GET https://a.example/p HTTP/1.1\r\n" H "\r\n", REASON_ALLOWED},
                {true, "GET http://a.example/p HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {false, "GET https://a.example/p HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {false, "GET http://b.example/p HTTP/1.1\r\n" H "\r\n", REASON_HOST_MISMATCH},
                {false, "GET http://a.example:81/p HTTP/1.1\r\n" H "\r\n", REASON_HOST_MISMATCH},
                {false, "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n", REASON_MALFORMED_REQUEST},
                {false, "GET p HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
                {false, "GET /p#f HTTP/1.1\r\n" H "\r\n", REASON_MALFORMED_REQUEST},
        };

        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
                CU_ASSERT_EQUAL(judge_in_tunnel(requests[i].tls, false, requests[i].text), requests[i].reason);
        CU_ASSERT_EQUAL(
                judge_in_tunnel(true, false, "GET //p HTTP/1.1\r\nHost: A.EXAMPLE:443\r\n\r\n"), REASON_ALLOWED);
        CU_ASSERT_STRING_EQUAL(forward(false), "GET //p HTTP/1.1\r\n" H "\r\n");
}

/* Other protocols that begin with a letter are told from broken HTTP, but only where a tunnel begins. */
static void test_what_is_no_http(void)
{
        static const struct {
                const char *text;
                enum reason reason;
        } first[] = {
                {"SSH-2.0-OpenSSH_9.6\r\n", REASON_PROTOCOL_NOT_ALLOWED},
                {"EHLO mail.example\r\n", REASON_PROTOCOL_NOT_ALLOWED},
                {"USER a 0 * :b\r\n", REASON_PROTOCOL_NOT_ALLOWED},
                {"*1\r\n$4\r\nPING\r\n", REASON_PROTOCOL_NOT_ALLOWED},
                {"P\x01\x02\x03", REASON_PROTOCOL_NOT_ALLOWED},
                {"GET /\r\n", REASON_PROTOCOL_NOT_ALLOWED},
                {"\r\n\x01", REASON_PROTOCOL_NOT_ALLOWED},
                {"GET / HTTP/2.0\r\n", REASON_MALFORMED_REQUEST},
                {"PRI * HTTP/2.0\r\n", REASON_MALFORMED_REQUEST},
                {"GET /\x01", REASON_MALFORMED_REQUEST},
                {"GET / HTTP/1.1\n", REASON_MALFORMED_REQUEST},
                {"GET / HTTP/1.1\r\n" H "Bad Header: x\r\n", REASON_MALFORMED_REQUEST},
        };

        for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
                CU_ASSERT_EQUAL(judge_in_tunnel(false, true, first[i].text), first[i].reason);
                CU_ASSERT_EQUAL(judge_in_tunnel(false, false, first[i].text), REASON_MALFORMED_REQUEST);
        }
}

/* A head of n bytes in all, so many of them empty lines at its front. */
static char *head_of(size_t n, size_t empty_lines)
{
        static const char line[] = "GET http://a.example/ HTTP/1.1\r\n" H "X: ", end[] = "\r\n\r\n";
        char *head = malloc(n), *p = head;

        for (size_t i = 0; i < empty_lines; i++)
                p = mempcpy(p, "\r\n", 2);
        p = mempcpy(p, line, strlen(line));
        memset(p, 'a', n - (size_t)(p - head));
        memcpy(head + n - strlen(end), end, strlen(end));
        return head;
}

static void test_limits_at_their_edges(void)
{
        static const size_t empty_lines[] = {0, 1, 4000};

        for (size_t i = 0; i < 3; i++) {
                char *fits = head_of(HTTP1_HEAD_MAX_BYTES, empty_lines[i]),
                     *over = head_of(HTTP1_HEAD_MAX_BYTES + 1, empty_lines[i]);

                CU_ASSERT_EQUAL(judge_in(&at_proxy, fits, HTTP1_HEAD_MAX_BYTES), REASON_ALLOWED);
                CU_ASSERT_EQUAL(judge_in(&at_proxy, over, HTTP1_HEAD_MAX_BYTES + 1), REASON_MALFORMED_REQUEST);
                free(fits);
                free(over);
        }
}

/* The largest growth: one-byte fields without white space, a longest host that was not there, close. */
static void test_the_largest_head_can_be_written(void)
{
        char head[HTTP1_HEAD_MAX_BYTES];
        size_t n = (size_t)snprintf(head, sizeof(head), "G http://");

        for (size_t i = 0; i < 253; i++)
                head[n++] = i % 2 ? '.' : 'a';
        n += (size_t)snprintf(head + n, sizeof(head) - n, ":65535 HTTP/1.0\r\n");
        for (size_t i = 0; i < 99; i++)
                n += (size_t)snprintf(head + n, sizeof(head) - n, "a:b\r\n");
        n += (size_t)snprintf(head + n, sizeof(head) - n, "c:");
        memset(head + n, 'x', sizeof(head) - n);
        memcpy(head + sizeof(head) - 4, "\r\n\r\n", 4);
        CU_ASSERT_EQUAL(judge_in(&at_proxy, head, sizeof(head)), REASON_ALLOWED);
        CU_ASSERT_EQUAL(strlen(forward(true)), strlen("G / HTTP/1.1\r\nHost: ") + 253 + strlen(":65535\r\n") + 99 * 6 +
                                                       3 + (sizeof(head) - n - 4) +
                                                       strlen("\r\nConnection: close\r\n\r\n"));
}

static void test_a_hundred_fields(void)
{
        char head[4096];

        for (size_t fields = 100; fields <= 101; fields++) {
                size_t n = (size_t)snprintf(head, sizeof(head), "GET http://a.example/ HTTP/1.1\r\n" H);

                for (size_t i = 1; i < fields; i++)
                        n += (size_t)snprintf(head + n, sizeof(head) - n, "X-%zu: v\r\n", i);
                memcpy(head + n, "\r\n", 3);
                CU_ASSERT_EQUAL(judge(head), fields == 100 ? REASON_ALLOWED : REASON_MALFORMED_REQUEST);
        }
}

/* Each name costs a look at every field; a line of commas must not buy thousands. */
static void test_connection_names_are_bounded(void)
{
        char head[HTTP1_HEAD_MAX_BYTES + 1] = "GET http://a.example/ HTTP/1.1\r\n" H "Connection: ";
        size_t n = strlen(head);

        memset(head + n, ',', 8000);
        memcpy(head + n + 8000, "\r\n\r\n", 5);
        CU_ASSERT_EQUAL(judge(head), REASON_MALFORMED_REQUEST);
}

static void test_begun(void)
{
        size_t taken;

        http1_request_init(&request, &at_proxy);
        CU_ASSERT_FALSE(http1_request_begun(&request));
        CU_ASSERT_EQUAL(http1_request_feed(&request, (const uint8_t *)"\r\n", 2, &taken), HTTP1_E_MORE);
        CU_ASSERT_FALSE(http1_request_begun(&request));
        CU_ASSERT_EQUAL(http1_request_feed(&request, (const uint8_t *)"G", 1, &taken), HTTP1_E_MORE);
        CU_ASSERT_TRUE(http1_request_begun(&request));
}

static void test_takes_no_byte_behind_the_head(void)
{
        static const char text[] = "GET http://a.example/ HTTP/1.1\r\n" H "\r\n";
        char more[sizeof(text) + 10];
        size_t taken;

        (void)snprintf(more, sizeof(more), "%sGET ", text);
        http1_request_init(&request, &at_proxy);
        CU_ASSERT_EQUAL(http1_request_feed(&request, (const uint8_t *)more, strlen(more), &taken), 0);
        CU_ASSERT_EQUAL(taken, strlen(text));
}

static int read_response(const struct http1_exchange *exchange, const char *text)
{
        size_t taken;
        int whole, r = HTTP1_E_MORE;

        http1_response_init(&response, exchange);
        whole = http1_response_feed(&response, (const uint8_t *)text, strlen(text), &taken);
        http1_response_init(&response, exchange);
        for (size_t at = 0; at < strlen(text) && r == HTTP1_E_MORE; at += taken)
                r = http1_response_feed(&response, (const uint8_t *)text + at, 1, &taken);
        CU_ASSERT_EQUAL(r, whole);
        return r;
}

static void test_answers_and_their_framing(void)
{
        static const struct {
                struct http1_exchange exchange;
                const char *text;
                enum http1_framing framing;
                bool keep_alive;
                const char *forwarded; /* to HTTP/1.1, kept alive where it can be */
        } right[] = {
                {{0}, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n", HTTP1_FRAMING_LENGTH, true,
                        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\n"},
                {{0}, "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nTrailer: Z\r\n\r\n", HTTP1_FRAMING_CHUNKED, true,
                        "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"},
                {{0}, "HTTP/1.1 200 \xe4\tb\r\n\r\n", HTTP1_FRAMING_UNTIL_CLOSE, false,
                        "HTTP/1.1 200 \xe4\tb\r\nTransfer-Encoding: chunked\r\n\r\n"},
                {{0}, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP1_FRAMING_LENGTH, false,
                        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
                {{0}, "HTTP/1.1 200 OK\r\nConnection: close, X-In\r\nX-In: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\nContent-Length: 0\r\n\r\n",
                        HTTP1_FRAMING_LENGTH, false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
                {{0}, "HTTP/1.1 200 OK\r\nProxy-Status: wbbroker; error=http_request_denied\r\nContent-Length: 0\r\n\r\n",
                        HTTP1_FRAMING_LENGTH, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
                {{0}, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", HTTP1_FRAMING_NONE, true,
                        "HTTP/1.1 204 No Content\r\n\r\n"},
                {{0}, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", HTTP1_FRAMING_NONE, true,
                        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"},
                {{.head = true}, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP1_FRAMING_NONE, true,
                        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
                {{.head = true}, "HTTP/1.1 200 OK\r\n\r\n", HTTP1_FRAMING_NONE, true, "HTTP/1.1 200 OK\r\n\r\n"},
                {{.head = true}, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_FRAMING_NONE, true,
                        "HTTP/1.1 200 OK\r\n\r\n"},
                {{0}, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", HTTP1_FRAMING_NONE, true,
                        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
                {{.upgrade = true}, "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                        HTTP1_FRAMING_NONE, false,
                        "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
        };

        for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
                CU_ASSERT_EQUAL_FATAL(read_response(&right[i].exchange, right[i].text), 0);
                CU_ASSERT_EQUAL(response.framing, right[i].framing);
                CU_ASSERT_EQUAL(response.keep_alive, right[i].keep_alive);
                CU_ASSERT_EQUAL(response.interim, response.status == 103);
                CU_ASSERT_EQUAL(response.upgraded, response.status == 101);
                forwarded[http1_response_write(&response, http1_response_framing_to(&response, false), false, forwarded,
                        HTTP1_FORWARD_MAX_BYTES)] = '\0';
                CU_ASSERT_STRING_EQUAL(forwarded, right[i].forwarded);
        }
}

static void test_answers_to_an_old_client(void)
{
        struct http1_exchange exchange = {0};

        CU_ASSERT_EQUAL(read_response(&exchange, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), 0);
        CU_ASSERT_EQUAL(http1_response_framing_to(&response, true), HTTP1_FRAMING_UNTIL_CLOSE);
        forwarded[http1_response_write(
                &response, HTTP1_FRAMING_UNTIL_CLOSE, true, forwarded, HTTP1_FORWARD_MAX_BYTES)] = '\0';
        CU_ASSERT_STRING_EQUAL(forwarded, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
}

static void test_refused_answers(void)
{
        static const char *const refused[] = {
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 1\n\n",
                "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
                "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
                "HTTP/1.1 600 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1\r\n\r\n",
                "\r\nHTTP/1.1 200 OK\r\n\r\n", "220 smtp.example ESMTP\r\n", "SSH-2.0-OpenSSH_9.6\r\n", "\x16\x03",
                "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", /* unsolicited */
        };
        struct http1_exchange exchange = {0};

        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
                CU_ASSERT_EQUAL(read_response(&exchange, refused[i]), HTTP1_E_REFUSED);
                CU_ASSERT_EQUAL(response.refusal.reason, REASON_UPSTREAM_PROTOCOL);
        }
        exchange.upgrade = true;
        CU_ASSERT_EQUAL(read_response(&exchange, "HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
                HTTP1_E_REFUSED);
        CU_ASSERT_EQUAL(read_response(&exchange, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n"), HTTP1_E_REFUSED);
}

static void test_via_is_the_agents_own_word(void)
{
        CU_ASSERT_EQUAL(
                judge("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nWb-Via: transparent\r\n\r\n"), 0);
        CU_ASSERT_TRUE(request.transparent);
        CU_ASSERT_EQUAL(judge("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nWb-Via: x\r\n\r\n"), 0);
        CU_ASSERT_FALSE(request.transparent);
        CU_ASSERT_EQUAL(judge("GET http://a.example/ HTTP/1.1\r\n" H "Wb-Via: transparent\r\n\r\n"), 0);
        CU_ASSERT_FALSE(request.transparent);
        CU_ASSERT_PTR_NULL(strstr(forward(false), "Wb-Via")); /* and no server hears of it */
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"refused at the proxy", test_refused_at_the_proxy},
                {"every control byte is refused", test_every_control_byte_is_refused},
                {"forwarded to the byte", test_forwarded_to_the_byte},
                {"close is said", test_close_is_said},
                {"what is known of a request", test_what_is_known_of_a_request},
                {"a refusal knows method and target", test_refusal_knows_method_and_target},
                {"in the tunnel", test_in_the_tunnel},
                {"what is no HTTP", test_what_is_no_http},
                {"limits at their edges", test_limits_at_their_edges},
                {"the largest head can be written", test_the_largest_head_can_be_written},
                {"a hundred fields", test_a_hundred_fields},
                {"names in Connection are bounded", test_connection_names_are_bounded},
                {"begun", test_begun},
                {"takes no byte behind the head", test_takes_no_byte_behind_the_head},
                {"answers and their framing", test_answers_and_their_framing},
                {"answers to an old client", test_answers_to_an_old_client},
                {"refused answers", test_refused_answers},
                {"via is the agent's own word", test_via_is_the_agents_own_word},
                CU_TEST_INFO_NULL,
        };

        return suite_run("http1", tests);
}
