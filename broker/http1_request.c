/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "broker/http1_head.h"

#define HTTP_PORT  80u
#define HTTPS_PORT 443u

static int refuse(struct http1_request *r, enum reason reason, const char *detail)
{
        r->refusal = HTTP1_REFUSAL(reason, detail);
        return HTTP1_E_REFUSED;
}

static int malformed(struct http1_request *r, const char *detail)
{
        return refuse(r, REASON_MALFORMED_REQUEST, detail);
}

void http1_request_init(struct http1_request *r, const struct http1_context *context)
{
        assert((context->place == HTTP1_IN_TUNNEL) == (context->host != NULL));

        http1_head_init(&r->head, true);
        r->context = *context;
        r->refusal = HTTP1_REFUSAL(REASON_ALLOWED, NULL);
        r->method = r->path = r->query = NULL;
        r->has_target = r->connect = r->http10 = false;
        r->framing = HTTP1_FRAMING_NONE;
        r->length_bytes = 0;
        r->keep_alive = r->upgrade = r->expect_continue = false;
        if (context->place == HTTP1_IN_TUNNEL) {
                r->has_target = true;
                r->host = *context->host;
                r->port = context->port;
        }
}

bool http1_request_begun(const struct http1_request *r)
{
        return http1_head_begun(&r->head);
}

static uint16_t default_port(const struct http1_request *r)
{
        return r->context.tls ? HTTPS_PORT : HTTP_PORT;
}

static bool same_host(const struct hostname *a, const struct hostname *b)
{
        return a->kind == b->kind && a->length == b->length && !memcmp(a->text, b->text, a->length);
}

/*
 * Would a person call this line HTTP? A method, a space, and, as far as it came, a version in the third place. Tells a
 * broken request from another protocol that begins with a letter, such as SSH.
 */
static bool looks_like_http(const char *line, size_t n, bool complete)
{
        size_t method_n = 0;

        while (method_n < n && http1_is_token((uint8_t)line[method_n]))
                method_n++;
        if (!method_n || method_n == n || line[method_n] != ' ')
                return false;

        const char *space = memrchr(line + method_n + 1, ' ', n - method_n - 1);
        size_t rest = space ? n - (size_t)(space + 1 - line) : 0;

        if (!space)
                return !complete;
        return !strncasecmp(space + 1, "HTTP/", rest < 5 ? rest : 5) && (!complete || rest >= 5);
}

/* Refuses by what came of the first line. */
static int refuse_first_line(struct http1_request *r, const char *detail, bool complete)
{
        size_t n;
        const char *line = http1_head_first_line(&r->head, &n);

        if (r->context.first && !looks_like_http(line, n, complete))
                return refuse(r, REASON_PROTOCOL_NOT_ALLOWED, "the first bytes are neither TLS nor HTTP");
        return malformed(r, detail);
}

/* CONNECT's authority-form: the port is required. */
static int take_authority(struct http1_request *r, const char *target)
{
        if (r->context.place == HTTP1_IN_TUNNEL)
                return malformed(r, "CONNECT inside of a tunnel");
        r->connect = true;
        if (hostname_parse_with_port(target, strlen(target), &r->host, &r->port) || !r->port) {
                r->port = 0;
                return malformed(r, "CONNECT wants HOST:PORT");
        }
        r->has_target = true;
        return 0;
}

/* Splits "/path?query" in place. An empty path is "/", and "*" for OPTIONS without a query (RFC 9112 3.2.1, 3.2.4). */
static void take_path(struct http1_request *r, char *rest)
{
        char *mark = strchr(rest, '?');

        if (mark) {
                *mark = '\0';
                r->query = mark + 1;
        }
        if (*rest)
                r->path = rest;
        else
                r->path = !mark && !strcmp(r->method, "OPTIONS") ? "*" : "/";
}

static int take_absolute(struct http1_request *r, char *target)
{
        static const char http[] = "http://", https[] = "https://";
        bool secure = !strncasecmp(target, https, strlen(https));
        struct hostname host;
        uint16_t port;

        if (secure && !r->context.tls)
                return malformed(r, "https in absolute-form: use CONNECT");
        if (!secure && (r->context.tls || strncasecmp(target, http, strlen(http)) != 0))
                return malformed(r, r->context.place == HTTP1_AT_PROXY
                                            ? "a target that is neither http:// nor CONNECT's HOST:PORT"
                                            : "a target that is no path");

        char *authority = target + (secure ? strlen(https) : strlen(http));
        size_t n = strcspn(authority, "/?");

        if (hostname_parse_with_port(authority, n, &host, &port))
                return malformed(r, "a target whose host or port is none");
        if (!port)
                port = default_port(r);
        if (r->context.place == HTTP1_IN_TUNNEL && (port != r->port || !same_host(&host, &r->host)))
                return refuse(r, REASON_HOST_MISMATCH, "the request is for another host than the tunnel");
        r->host = host;
        r->port = port;
        r->has_target = true;
        take_path(r, authority + n);
        return 0;
}

static int take_target(struct http1_request *r, char *target)
{
        for (const char *p = target; *p; p++)
                if (*p < 0x21 || *p > 0x7e || *p == '#')
                        return malformed(r, "a byte that no target has");
        if (!strcmp(r->method, "CONNECT"))
                return take_authority(r, target);
        if (r->context.place == HTTP1_IN_TUNNEL && *target == '/') {
                take_path(r, target);
                return 0;
        }
        if (r->context.place == HTTP1_IN_TUNNEL && !strcmp(target, "*") && !strcmp(r->method, "OPTIONS")) {
                r->path = "*";
                return 0;
        }
        return take_absolute(r, target);
}

/* METHOD SP target SP version, single spaces (RFC 9112 3). */
static int take_request_line(struct http1_request *r)
{
        size_t n, method_n = 0;
        char *line = http1_head_first_line(&r->head, &n);

        while (http1_is_token((uint8_t)line[method_n]))
                method_n++;
        if (!method_n || line[method_n] != ' ')
                return refuse_first_line(r, "a request line without a method", true);

        char *target = line + method_n + 1;
        char *space = strchr(target, ' ');

        if (!space || space == target || !http1_version(space + 1, (size_t)(line + n - space - 1), &r->http10))
                return refuse_first_line(r, "a request line that is not METHOD TARGET HTTP/1.1", true);
        line[method_n] = *space = '\0';
        r->method = line;
        return take_target(r, target);
}

/* The one Host equals the target; CONNECT's may leave the port out, as it has no scheme and so no default port. */
static int check_host(struct http1_request *r, const char *value)
{
        struct hostname host;
        uint16_t port;

        if (hostname_parse_with_port(value, strlen(value), &host, &port))
                return malformed(r, "a Host that is no host");
        if (!port)
                port = r->connect ? r->port : default_port(r);
        if (port != r->port || !same_host(&host, &r->host))
                return refuse(r, REASON_HOST_MISMATCH, "the Host field is not the target");
        return 0;
}

static void take_expect(struct http1_request *r)
{
        const char *value = "";
        size_t count = http1_head_count(&r->head, FIELD_EXPECT, &value);

        if (r->http10) /* RFC 9110 10.1.1: to be ignored, and the origin must not think otherwise */
                http1_head_drop(&r->head, FIELD_EXPECT);
        else
                r->expect_continue = count && !strcasecmp(value, "100-continue");
}

static void take_via(struct http1_request *r)
{
        const char *value = "";

        r->transparent =
                r->connect && http1_head_count(&r->head, FIELD_WB_VIA, &value) == 1 && !strcmp(value, "transparent");
}

/* All lines are in. */
static int finish(struct http1_request *r)
{
        struct http1_connection connection;
        const char *detail, *host = NULL;
        size_t hosts = http1_head_count(&r->head, FIELD_HOST, &host);

        detail = http1_head_framing(&r->head, r->http10, &r->framing, &r->length_bytes);
        if (!detail)
                detail = http1_head_connection(&r->head, &connection);
        if (!detail && r->connect && r->framing != HTTP1_FRAMING_NONE)
                detail = "CONNECT with a body";
        if (!detail && hosts > 1)
                detail = "more than one Host";
        if (!detail && !hosts && !r->http10)
                detail = "no Host";
        if (detail)
                return malformed(r, detail);

        take_expect(r);
        take_via(r);
        r->keep_alive = !r->http10 && !connection.close;
        r->upgrade = connection.upgrade && !r->http10 && r->framing == HTTP1_FRAMING_NONE &&
                     !strcmp(r->method, "GET") && http1_head_has_websocket(&r->head);
        return hosts ? check_host(r, host) : 0;
}

int http1_request_feed(struct http1_request *r, const uint8_t *bytes, size_t n, size_t *ret_taken)
{
        size_t taken = 0, step;
        const char *detail;
        int k;

        for (;;) {
                enum http1_head_event event = http1_head_feed(&r->head, bytes + taken, n - taken, &step, &detail);

                taken += step;
                *ret_taken = taken;
                switch (event) {
                case HEAD_MORE: return HTTP1_E_MORE;
                case HEAD_COMPLETE: return finish(r);
                case HEAD_REFUSED: return r->method ? malformed(r, detail) : refuse_first_line(r, detail, false);
                case HEAD_FIRST_LINE:
                        k = take_request_line(r);
                        if (k)
                                return k;
                        break;
                }
        }
}

static void put_host(struct http1_text *t, const struct http1_request *r)
{
        bool brackets = r->host.kind == HOST_IPV6;

        http1_puts(t, brackets ? "Host: [" : "Host: ");
        http1_put(t, r->host.text, r->host.length);
        if (brackets)
                http1_puts(t, "]");
        if (r->port != default_port(r)) {
                http1_puts(t, ":");
                http1_put_number(t, r->port);
        }
        http1_puts(t, "\r\n");
}

size_t http1_request_write(const struct http1_request *r, bool close, char *ret_text, size_t room)
{
        struct http1_text t = {.to = ret_text, .room = room};

        assert(room >= HTTP1_FORWARD_MAX_BYTES && r->path);
        http1_puts(&t, r->method);
        http1_puts(&t, " ");
        http1_puts(&t, r->path);
        if (r->query) {
                http1_puts(&t, "?");
                http1_puts(&t, r->query);
        }
        http1_puts(&t, " HTTP/1.1\r\n");
        put_host(&t, r);
        http1_put_fields(&t, &r->head);
        http1_put_framing(&t, r->framing, r->length_bytes);
        http1_put_end(&t, r->upgrade, close);
        return t.used;
}
