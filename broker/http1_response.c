/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "broker/http1_head.h"

static int refuse(struct http1_response *r, const char *detail)
{
        r->refusal = HTTP1_REFUSAL(REASON_UPSTREAM_PROTOCOL, detail);
        return HTTP1_E_REFUSED;
}

void http1_response_init(struct http1_response *r, const struct http1_exchange *exchange)
{
        http1_head_init(&r->head, false);
        r->exchange = *exchange;
        r->refusal = HTTP1_REFUSAL(REASON_ALLOWED, NULL);
        r->status = 0;
        r->phrase = "";
        r->http10 = r->interim = r->upgraded = r->keep_alive = false;
        r->framing = HTTP1_FRAMING_NONE;
        r->length_bytes = 0;
}

bool http1_response_begun(const struct http1_response *r)
{
        return http1_head_begun(&r->head);
}

/* "HTTP/1.1 200 OK"; many leave the phrase out, some its space too. */
static int take_status_line(struct http1_response *r)
{
        size_t n;
        char *line = http1_head_first_line(&r->head, &n);
        const char *digits = line + strlen("HTTP/1.1 ");

        if (n < strlen("HTTP/1.1 200") || !http1_version(line, strlen("HTTP/1.1"), &r->http10) || line[8] != ' ')
                return refuse(r, "the answer does not begin with HTTP/1.1 and a status");
        for (size_t i = 0; i < 3; i++) {
                if (digits[i] < '0' || digits[i] > '9')
                        return refuse(r, "the answer's status is no number");
                r->status = r->status * 10 + (unsigned)(digits[i] - '0');
        }
        if (r->status < 100 || r->status > 599 || (digits[3] && digits[3] != ' '))
                return refuse(r, "the answer's status is none");
        r->phrase = digits[3] ? digits + 4 : "";
        return 0;
}

/* The length of what the answer has no body for (RFC 9110 8.6) is the representation's and passes. */
static void keep_length(struct http1_head *h)
{
        for (size_t i = 0; i < h->fields_n; i++)
                if (h->fields[i].id == FIELD_CONTENT_LENGTH)
                        h->fields[i].dropped = false;
}

/* RFC 9112 6.3, in its order. */
static void settle_framing(struct http1_response *r)
{
        bool informational = r->status < 200 || r->status == 204;

        if (!informational && !r->exchange.head && r->status != 304) {
                if (r->framing == HTTP1_FRAMING_NONE)
                        r->framing = HTTP1_FRAMING_UNTIL_CLOSE;
                return;
        }
        if (!informational)
                keep_length(&r->head);
        r->framing = HTTP1_FRAMING_NONE;
        r->length_bytes = 0;
}

static int finish(struct http1_response *r)
{
        struct http1_connection connection;
        const char *detail = http1_head_framing(&r->head, r->http10, &r->framing, &r->length_bytes);

        if (!detail)
                detail = http1_head_connection(&r->head, &connection);
        if (!detail && r->status == 101 &&
                (!r->exchange.upgrade || !connection.upgrade || !http1_head_has_websocket(&r->head)))
                detail = "the origin switched to a protocol that was not asked for";
        if (detail)
                return refuse(r, detail);

        r->upgraded = r->status == 101;
        r->interim = r->status < 200 && !r->upgraded;
        settle_framing(r);
        r->keep_alive = !r->http10 && !connection.close && !r->upgraded && r->framing != HTTP1_FRAMING_UNTIL_CLOSE;
        return 0;
}

int http1_response_feed(struct http1_response *r, const uint8_t *bytes, size_t n, size_t *ret_taken)
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
                case HEAD_REFUSED: return refuse(r, detail);
                case HEAD_FIRST_LINE:
                        k = take_status_line(r);
                        if (k)
                                return k;
                        break;
                }
        }
}

enum http1_framing http1_response_framing_to(const struct http1_response *r, bool client_http10)
{
        if (r->framing == HTTP1_FRAMING_CHUNKED || r->framing == HTTP1_FRAMING_UNTIL_CLOSE)
                return client_http10 ? HTTP1_FRAMING_UNTIL_CLOSE : HTTP1_FRAMING_CHUNKED;
        return r->framing;
}

size_t http1_response_write(
        const struct http1_response *r, enum http1_framing to, bool close, char *ret_text, size_t room)
{
        struct http1_text t = {.to = ret_text, .room = room};

        assert(room >= HTTP1_FORWARD_MAX_BYTES && r->status);
        assert(to != HTTP1_FRAMING_UNTIL_CLOSE || close);
        http1_puts(&t, "HTTP/1.1 ");
        http1_put_number(&t, r->status);
        http1_puts(&t, " ");
        http1_puts(&t, r->phrase);
        http1_puts(&t, "\r\n");
        http1_put_fields(&t, &r->head);
        http1_put_framing(&t, to, r->length_bytes);
        http1_put_end(&t, r->upgraded, close && !r->interim);
        return t.used;
}
