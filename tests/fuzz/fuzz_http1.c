/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection's bytes as heads and bodies. The first byte says where: at the proxy, in a tunnel (plain or intercepted,
 * its first bytes or not), or an origin's answer. Properties: the verdict does not depend on the pieces; what is
 * forwarded is itself accepted as a request of the same meaning, and forwarded again it is the same to the byte; a body
 * framed anew has the same payload.
 */
#include <string.h>

#include "broker/http1.h"
#include "broker/http1_body.h"
#include "tests/fuzz/fuzz.h"

enum mode {
        MODE_ANSWER = 1,
        MODE_TUNNEL = 2,
        MODE_TLS = 4,
        MODE_FIRST = 8,
        MODE_HEAD = 16,
        MODE_UPGRADE = 32,
        MODE_OLD_CLIENT = 64,
};

/* What one reading of the bytes came to. */
struct outcome {
        int head;
        size_t head_n;
        struct http1_refusal refusal;
        size_t forwarded_n;
        char forwarded[HTTP1_FORWARD_MAX_BYTES];
        enum http1_body_event body;
        size_t payload_n;
        uint8_t *payload; /* as large as the input */
        size_t taken;
};

static struct hostname target;

static struct http1_context context_of(uint8_t mode)
{
        bool tunnel = mode & MODE_TUNNEL, tls = tunnel && mode & MODE_TLS;

        return (struct http1_context){
                .place = tunnel ? HTTP1_IN_TUNNEL : HTTP1_AT_PROXY,
                .host = tunnel ? &target : NULL,
                .port = tls ? 443 : 80,
                .tls = tls,
                .first = tunnel && mode & MODE_FIRST,
        };
}

static void read_body(struct outcome *o, enum http1_framing framing, uint64_t length_bytes, const uint8_t *data,
        size_t n, size_t piece)
{
        struct http1_body b;

        http1_body_init(&b, framing, length_bytes);
        for (;;) {
                size_t k = min_size(piece, n - o->taken), taken, written;

                o->body = http1_body_transfer(&b, data + o->taken, k, &taken, false, o->payload + o->payload_n,
                        n + 1 - o->payload_n, &written);
                MUST(taken <= k && written <= taken);
                o->taken += taken;
                o->payload_n += written;
                if (o->body == HTTP1_BODY_END || o->body == HTTP1_BODY_MALFORMED || o->taken == n)
                        break;
                MUST(taken);
        }
}

/* The payload, sent in chunks of our own through little room, comes back as it was. */
static void check_reframed(const struct outcome *o)
{
        size_t room = o->payload_n * 32 + 64, n = 0, taken = 0, step, written;
        uint8_t *chunks = malloc(room), *back = malloc(o->payload_n + 1);
        struct http1_body in, out;
        enum http1_body_event event;

        http1_body_init(&in, HTTP1_FRAMING_LENGTH, o->payload_n);
        do {
                event = http1_body_transfer(&in, o->payload + taken, o->payload_n - taken, &step, true, chunks + n,
                        HTTP1_TRANSFER_ROOM_MIN, &written);
                MUST(written <= HTTP1_TRANSFER_ROOM_MIN && (step || written || event == HTTP1_BODY_END));
                taken += step;
                n += written;
        } while (event != HTTP1_BODY_END);

        http1_body_init(&out, HTTP1_FRAMING_CHUNKED, 0);
        MUST(http1_body_transfer(&out, chunks, n, &taken, false, back, o->payload_n + 1, &written) == HTTP1_BODY_END);
        MUST(taken == n && written == o->payload_n && !memcmp(back, o->payload, written));
        free(chunks);
        free(back);
}

static void check_texts(const struct http1_head *h)
{
        for (size_t i = 0; i < h->fields_n; i++) {
                MUST(strlen(h->text + h->fields[i].name) == h->fields[i].name_n);
                MUST(strlen(h->text + h->fields[i].value) == h->fields[i].value_n);
        }
}

/* What we forward another strict reader must read as the same request. */
static void check_forwarded(const struct http1_request *r, const struct outcome *o)
{
        struct http1_context context = {.place = HTTP1_IN_TUNNEL,
                .host = &r->host,
                .port = r->port,
                .tls = r->context.place == HTTP1_IN_TUNNEL && r->context.tls};
        struct http1_request *again = malloc(sizeof(*again));
        char *twice = malloc(HTTP1_FORWARD_MAX_BYTES);
        size_t taken;

        /* It may have grown beyond what a request may have; that is the origin's to judge. */
        http1_request_init(again, &context);
        if (o->forwarded_n <= HTTP1_HEAD_MAX_BYTES && r->head.fields_n < HTTP1_FIELDS_MAX - 3) {
                MUST(!http1_request_feed(again, (const uint8_t *)o->forwarded, o->forwarded_n, &taken) &&
                        taken == o->forwarded_n);
                MUST(!strcmp(again->method, r->method) && !strcmp(again->path, r->path));
                MUST(!again->query == !r->query && (!r->query || !strcmp(again->query, r->query)));
                MUST(again->framing == r->framing && again->length_bytes == r->length_bytes &&
                        again->upgrade == r->upgrade);
                MUST(http1_request_write(again, false, twice, HTTP1_FORWARD_MAX_BYTES) == o->forwarded_n);
                MUST(!memcmp(twice, o->forwarded, o->forwarded_n));
        }
        free(again);
        free(twice);
}

static void read_request(struct outcome *o, uint8_t mode, const uint8_t *data, size_t n, size_t piece)
{
        struct http1_context context = context_of(mode);
        struct http1_request *r = malloc(sizeof(*r));
        size_t taken;

        http1_request_init(r, &context);
        for (o->head = HTTP1_E_MORE; o->taken < n && o->head == HTTP1_E_MORE; o->taken += taken)
                o->head = http1_request_feed(r, data + o->taken, min_size(piece, n - o->taken), &taken);
        o->refusal = r->refusal;
        o->head_n = o->taken;
        if (o->head == 0) {
                check_texts(&r->head);
                MUST(r->has_target && r->port && *r->method);
                MUST(context.place == HTTP1_AT_PROXY ||
                        (r->port == context.port && !strcmp(r->host.text, target.text)));
        }
        if (o->head == 0 && !r->connect) {
                o->forwarded_n = http1_request_write(r, false, o->forwarded, sizeof(o->forwarded));
                check_forwarded(r, o);
                read_body(o, r->framing, r->length_bytes, data, n, piece);
        }
        free(r);
}

static void read_answer(struct outcome *o, uint8_t mode, const uint8_t *data, size_t n, size_t piece)
{
        struct http1_exchange exchange = {.head = mode & MODE_HEAD, .upgrade = mode & MODE_UPGRADE};
        struct http1_response *r = malloc(sizeof(*r));
        size_t taken;

        http1_response_init(r, &exchange);
        for (o->head = HTTP1_E_MORE; o->taken < n && o->head == HTTP1_E_MORE; o->taken += taken)
                o->head = http1_response_feed(r, data + o->taken, min_size(piece, n - o->taken), &taken);
        o->refusal = r->refusal;
        o->head_n = o->taken;
        if (o->head == 0) {
                enum http1_framing to = http1_response_framing_to(r, mode & MODE_OLD_CLIENT);

                check_texts(&r->head);
                MUST(!r->upgraded || exchange.upgrade);
                MUST(to != HTTP1_FRAMING_CHUNKED || !(mode & MODE_OLD_CLIENT));
                o->forwarded_n = http1_response_write(
                        r, to, to == HTTP1_FRAMING_UNTIL_CLOSE, o->forwarded, sizeof(o->forwarded));
                read_body(o, r->framing, r->length_bytes, data, n, piece);
        }
        free(r);
}

static struct outcome *read_all(uint8_t mode, const uint8_t *data, size_t n, size_t piece)
{
        struct outcome *o = calloc(1, sizeof(*o));

        o->payload = malloc(n + 1);
        if (mode & MODE_ANSWER)
                read_answer(o, mode, data, n, piece);
        else
                read_request(o, mode, data, n, piece);
        return o;
}

static void outcome_free(struct outcome *o)
{
        free(o->payload);
        free(o);
}

static void check_same(const struct outcome *a, const struct outcome *b)
{
        MUST(a->head == b->head && a->head_n == b->head_n);
        MUST(a->refusal.reason == b->refusal.reason && a->refusal.detail == b->refusal.detail);
        MUST(a->forwarded_n == b->forwarded_n && !memcmp(a->forwarded, b->forwarded, a->forwarded_n));
        MUST(a->body == b->body && a->taken == b->taken);
        MUST(a->payload_n == b->payload_n && !memcmp(a->payload, b->payload, a->payload_n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static const size_t pieces[] = {1, 7};
        struct outcome *whole;

        if (!n || hostname_parse("a.example", strlen("a.example"), &target))
                return 0;
        whole = read_all(data[0], data + 1, n - 1, SIZE_MAX);
        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
                struct outcome *pieced = read_all(data[0], data + 1, n - 1, pieces[i]);

                check_same(whole, pieced);
                outcome_free(pieced);
        }
        if (whole->head == 0 && whole->body == HTTP1_BODY_END)
                check_reframed(whole);
        outcome_free(whole);
        return 0;
}
