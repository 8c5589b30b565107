/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two passes. The first walks the records as they come and finds where the handshake message ends; it looks at nothing
 * but record headers and the message's own. The second reads the message once it is whole, across the record
 * boundaries, with a cursor that cannot leave the vector it is in. No copy is made of either.
 */
#include "broker/client_hello.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "broker/http1.h"

#define RECORD_HANDSHAKE    22u
#define RECORD_HEADER_BYTES 5u
#define RECORD_MAX_BYTES    (1u << 14) /* RFC 8446 5.1 */

#define MESSAGE_CLIENT_HELLO 1u
#define MESSAGE_HEADER_BYTES 4u

#define EXTENSION_SERVER_NAME            0u
#define EXTENSION_ENCRYPTED_CLIENT_HELLO 0xfe0du
#define EXTENSIONS_MAX                   128u /* browsers send about 20 */

#define NAME_TYPE_HOST 0u
#define SESSION_ID_MAX 32u
#define RANDOM_BYTES   32u
#define VERSION_TLS10  0x0301u
#define VERSION_MAJOR  3u

static_assert(CLIENT_HELLO_RAW_MAX_BYTES >= CLIENT_HELLO_MAX_BYTES + RECORD_HEADER_BYTES, "one record must fit");

enum verdict {
        VERDICT_NONE,
        VERDICT_COMPLETE,
        VERDICT_MALFORMED,
};

enum first_byte first_byte_of(uint8_t byte)
{
        if (byte == RECORD_HANDSHAKE)
                return FIRST_BYTE_TLS;
        return byte == '\r' || http1_is_token(byte) ? FIRST_BYTE_HTTP : FIRST_BYTE_OTHER;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
        return a < b ? a : b;
}

/* The message's length with its header; known once the header is. */
static uint32_t message_bytes(const struct client_hello *h)
{
        return MESSAGE_HEADER_BYTES + ((uint32_t)h->header[1] << 16 | (uint32_t)h->header[2] << 8 | h->header[3]);
}

static uint32_t record_bytes(const uint8_t *header)
{
        return (uint32_t)header[3] << 8 | header[4];
}

/* A record's header, n bytes of which are there: any wrong byte is told at once. */
static int check_record(const uint8_t *header, size_t n)
{
        if ((n > 0 && header[0] != RECORD_HANDSHAKE) || (n > 1 && header[1] != VERSION_MAJOR))
                return CLIENT_HELLO_E_MALFORMED;
        if (n < RECORD_HEADER_BYTES)
                return CLIENT_HELLO_E_MORE;
        if (!record_bytes(header) || record_bytes(header) > RECORD_MAX_BYTES)
                return CLIENT_HELLO_E_MALFORMED;
        return 0;
}

/* Takes payload of the record, n bytes of which are there. */
static int walk_payload(struct client_hello *h, const uint8_t *payload, uint32_t n)
{
        bool in_header = h->message_n < MESSAGE_HEADER_BYTES;
        uint32_t wanted = (in_header ? MESSAGE_HEADER_BYTES : message_bytes(h)) - h->message_n;
        uint32_t taken = min_u32(min_u32(n, h->record_left), wanted);

        if (in_header)
                memcpy(h->header + h->message_n, payload, taken);
        h->message_n += taken;
        h->record_left -= taken;
        h->walked += taken;
        if (in_header && h->message_n && h->header[0] != MESSAGE_CLIENT_HELLO)
                return CLIENT_HELLO_E_MALFORMED;
        if (h->message_n < MESSAGE_HEADER_BYTES)
                return CLIENT_HELLO_E_MORE;
        if (message_bytes(h) > CLIENT_HELLO_MAX_BYTES)
                return CLIENT_HELLO_E_MALFORMED;
        return h->message_n == message_bytes(h) ? 0 : CLIENT_HELLO_E_MORE;
}

/* The first pass: 0 when the message is whole. */
static int walk(struct client_hello *h, const uint8_t *raw, size_t n)
{
        int r;

        for (;;) {
                if (!h->record_left) {
                        r = check_record(raw + h->walked, n - h->walked);
                        if (r)
                                return r;
                        h->record_left = record_bytes(raw + h->walked);
                        h->walked += RECORD_HEADER_BYTES;
                }
                if (h->walked == n)
                        return CLIENT_HELLO_E_MORE;
                r = walk_payload(h, raw + h->walked, min_u32((uint32_t)(n - h->walked), CLIENT_HELLO_RAW_MAX_BYTES));
                if (h->walked > CLIENT_HELLO_RAW_MAX_BYTES)
                        return CLIENT_HELLO_E_MALFORMED;
                if (r != CLIENT_HELLO_E_MORE)
                        return r;
        }
}

/* Reads the message across its records; a read past `end` fails for good and gives 0. */
struct cursor {
        const uint8_t *raw;
        uint32_t record_left;
        uint32_t at;  /* in the message */
        uint32_t end; /* of the innermost vector */
        bool failed;
};

static uint8_t read_u8(struct cursor *c)
{
        if (c->failed || c->at == c->end) {
                c->failed = true;
                return 0;
        }
        if (!c->record_left) {
                c->record_left = record_bytes(c->raw);
                c->raw += RECORD_HEADER_BYTES;
        }
        c->record_left--;
        c->at++;
        return *c->raw++;
}

static uint16_t read_u16(struct cursor *c)
{
        uint16_t high = read_u8(c);

        return (uint16_t)(high << 8 | read_u8(c));
}

static void skip(struct cursor *c, uint32_t n)
{
        while (n-- && !c->failed)
                read_u8(c);
}

/* Enters a vector of n bytes: the end of the outer one, for leave(). */
static uint32_t enter(struct cursor *c, uint32_t n)
{
        uint32_t outer = c->end;

        if (n > c->end - c->at)
                c->failed = true;
        else
                c->end = c->at + n;
        return outer;
}

/* A vector must have been read to its end. */
static void leave(struct cursor *c, uint32_t outer)
{
        if (c->at != c->end)
                c->failed = true;
        c->end = outer;
}

static void read_name(struct client_hello *h, struct cursor *c)
{
        uint16_t n = read_u16(c);
        uint32_t outer = enter(c, n);

        if (!n)
                c->failed = true;
        if (h->sni != CLIENT_HELLO_SNI_ABSENT) {
                h->sni = CLIENT_HELLO_SNI_SEVERAL;
                skip(c, n);
        } else {
                h->sni = CLIENT_HELLO_SNI_ONE;
                h->name_n = n;
                for (uint32_t i = 0; i < n && !c->failed; i++) {
                        char byte = (char)read_u8(c);

                        if (i < CLIENT_HELLO_NAME_MAX)
                                h->name[i] = byte;
                }
        }
        leave(c, outer);
}

/* RFC 6066 3: a list of at least one name. Other types of names were never defined, so their length is not known. */
static void read_server_name(struct client_hello *h, struct cursor *c)
{
        uint32_t outer = enter(c, read_u16(c));

        do {
                if (read_u8(c) != NAME_TYPE_HOST)
                        c->failed = true;
                read_name(h, c);
        } while (!c->failed && c->at < c->end);
        leave(c, outer);
}

static void read_extensions(struct client_hello *h, struct cursor *c)
{
        uint16_t types[EXTENSIONS_MAX];
        size_t types_n = 0;
        uint32_t all = enter(c, read_u16(c));

        while (!c->failed && c->at < c->end) {
                uint16_t type = read_u16(c), n = read_u16(c);
                uint32_t outer = enter(c, n);

                for (size_t i = 0; i < types_n; i++)
                        c->failed |= types[i] == type; /* RFC 8446 4.2 */
                if (c->failed || types_n == EXTENSIONS_MAX) {
                        c->failed = true;
                        break;
                }
                types[types_n++] = type;

                if (type == EXTENSION_SERVER_NAME)
                        read_server_name(h, c);
                else
                        skip(c, n);
                h->ech |= type == EXTENSION_ENCRYPTED_CLIENT_HELLO;
                leave(c, outer);
        }
        leave(c, all);
}

/* The second pass. RFC 5246 7.4.1.2: the extensions may be absent altogether. */
static int read_hello(struct client_hello *h, const uint8_t *raw)
{
        struct cursor c = {.raw = raw, .end = message_bytes(h)};
        uint32_t n;

        skip(&c, MESSAGE_HEADER_BYTES);
        h->legacy_version = read_u16(&c);
        skip(&c, RANDOM_BYTES);

        n = read_u8(&c);
        if (n > SESSION_ID_MAX)
                c.failed = true;
        skip(&c, n);

        n = read_u16(&c); /* cipher suites */
        if (!n || n % 2)
                c.failed = true;
        skip(&c, n);

        n = read_u8(&c); /* compression methods */
        if (!n)
                c.failed = true;
        skip(&c, n);

        if (!c.failed && c.at < c.end)
                read_extensions(h, &c);
        if (c.failed || c.at != c.end)
                return CLIENT_HELLO_E_MALFORMED;
        if (h->legacy_version >> 8 != VERSION_MAJOR || h->legacy_version < VERSION_TLS10)
                return CLIENT_HELLO_E_MALFORMED;
        return 0;
}

int client_hello_parse(struct client_hello *h, const uint8_t *raw, size_t n)
{
        int r;

        if (h->verdict != VERDICT_NONE)
                return h->verdict == VERDICT_COMPLETE ? 0 : CLIENT_HELLO_E_MALFORMED;

        r = walk(h, raw, n);
        if (!r && h->record_left) /* more in the record: no client sends a second message yet */
                r = CLIENT_HELLO_E_MALFORMED;
        if (!r)
                r = read_hello(h, raw);
        if (r == CLIENT_HELLO_E_MORE)
                return r;
        h->verdict = r ? VERDICT_MALFORMED : VERDICT_COMPLETE;
        h->raw_bytes = h->walked;
        return r;
}

static_assert(CLIENT_HELLO_MAX_BYTES <= RECORD_MAX_BYTES, "a hello fits one record");

size_t client_hello_join(const struct client_hello *h, const uint8_t *raw, uint8_t *ret_record)
{
        uint32_t n = message_bytes(h);
        struct cursor c = {.raw = raw, .end = n};

        assert(h->verdict == VERDICT_COMPLETE);
        memcpy(ret_record, raw, RECORD_HEADER_BYTES);
        ret_record[3] = (uint8_t)(n >> 8);
        ret_record[4] = (uint8_t)n;
        for (uint32_t i = 0; i < n; i++)
                ret_record[RECORD_HEADER_BYTES + i] = read_u8(&c);
        return RECORD_HEADER_BYTES + n;
}

enum reason client_hello_judge(const struct client_hello *h, const struct hostname *target)
{
        assert(h->verdict == VERDICT_COMPLETE);
        if (target->kind != HOST_NAME)
                return REASON_ALLOWED;
        if (h->sni == CLIENT_HELLO_SNI_ABSENT)
                return REASON_SNI_MISSING;
        if (h->sni == CLIENT_HELLO_SNI_ONE && h->name_n == target->length &&
                !strncasecmp(h->name, target->text, target->length))
                return REASON_ALLOWED;
        return REASON_SNI_MISMATCH;
}
