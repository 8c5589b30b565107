/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/dns_message.h"

#include <assert.h>
#include <string.h>

#define HEADER_BYTES   12u
#define LABEL_MAX      63u
#define POINTER_BITS   0xc0u
#define ADDITIONAL_MAX 8u /* a stub's question has an OPT, perhaps a TSIG */
#define OPTION_EDE     15u

#define FLAG_QR 0x8000u
#define FLAG_TC 0x0200u
#define FLAG_RD 0x0100u
#define FLAG_RA 0x0080u
#define FLAG_CD 0x0010u
#define FLAG_DO 0x8000u /* of the OPT record's flags, RFC 3225 */

/* ---- reading: a cursor that never passes the end */

struct reader {
        const uint8_t *bytes;
        size_t at, n;
        bool failed;
};

static const uint8_t *take(struct reader *r, size_t n)
{
        const uint8_t *p = r->bytes + r->at;

        if (r->failed || n > r->n - r->at) {
                r->failed = true;
                return NULL;
        }
        r->at += n;
        return p;
}

static uint16_t take16(struct reader *r)
{
        const uint8_t *p = take(r, 2);

        return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

static uint8_t take8(struct reader *r)
{
        const uint8_t *p = take(r, 1);

        return p ? *p : 0;
}

/* The question's name is the first of the message, so a pointer in it could only point into the header. */
static void take_question_name(struct reader *r, struct dns_query *q)
{
        size_t start = r->at, n = 0;

        for (;;) {
                uint8_t length = take8(r);

                if (r->failed || length > LABEL_MAX) {
                        r->failed = true;
                        return;
                }
                n += 1u + length;
                if (n > DNS_NAME_MAX_BYTES || !take(r, length)) {
                        r->failed = true;
                        return;
                }
                if (length == 0)
                        break;
        }
        memcpy(q->name, r->bytes + start, n);
        q->name_n = (uint8_t)n;
}

/* Each pointer points before the name that it is in, and before the last one that was followed: so there is an end. */
static bool pointer_is_good(const struct reader *r, size_t target, size_t start)
{
        struct reader at = {.bytes = r->bytes, .n = r->n, .at = target};
        size_t below = start, n = 0;

        while (target >= HEADER_BYTES && target < below) {
                uint8_t length = take8(&at);

                if (at.failed)
                        return false;
                if ((length & POINTER_BITS) == POINTER_BITS) {
                        below = target;
                        target = (size_t)(length & ~POINTER_BITS) << 8 | take8(&at);
                        at.at = target < r->n ? target : r->n;
                        continue;
                }
                n += 1u + length;
                if (length > LABEL_MAX || n > DNS_NAME_MAX_BYTES || !take(&at, length))
                        return false;
                if (length == 0)
                        return true;
        }
        return false;
}

/* A record's owner, which is of no interest. True if it is the root. */
static bool skip_name(struct reader *r)
{
        size_t start = r->at, n = 0;

        for (;;) {
                uint8_t length = take8(r);

                if (!r->failed && (length & POINTER_BITS) == POINTER_BITS) {
                        size_t target = (size_t)(length & ~POINTER_BITS) << 8 | take8(r);

                        r->failed = r->failed || !pointer_is_good(r, target, start);
                        return false;
                }
                n += 1u + length;
                if (length > LABEL_MAX || n > DNS_NAME_MAX_BYTES || !take(r, length)) {
                        r->failed = true;
                        return false;
                }
                if (length == 0)
                        return n == 1;
        }
}

/* None of the options matters, but what is no list of options is no OPT record (RFC 6891, 6.1.2). */
static void skip_options(struct reader *r, size_t n)
{
        size_t end = r->at + n;

        while (!r->failed && r->at < end) {
                (void)take16(r);
                (void)take(r, take16(r));
        }
        if (r->at != end)
                r->failed = true;
}

static void take_additional(struct reader *r, struct dns_query *q)
{
        bool is_root = skip_name(r);
        uint16_t type = take16(r), class = take16(r);
        uint8_t extended = take8(r), version = take8(r);
        uint16_t flags = take16(r), n = take16(r);

        (void)extended;
        if (type != DNS_TYPE_OPT) {
                (void)take(r, n);
                return;
        }
        if (!is_root || q->has_edns || n > r->n - r->at) {
                r->failed = true;
                return;
        }
        skip_options(r, n);
        q->has_edns = true;
        q->edns_version = version;
        q->udp_bytes = class;
        q->dnssec_ok = flags & FLAG_DO;
}

static void take_question(struct reader *r, struct dns_query *q)
{
        take_question_name(r, q);
        q->type = take16(r);
        q->class = take16(r);
        q->has_question = !r->failed;
}

/* FORMERR where it is none; how far it is understood stays in *q. */
static enum dns_rcode take_sections(struct reader *r, struct dns_query *q)
{
        uint16_t questions = take16(r), answers = take16(r), authorities = take16(r), additional = take16(r);

        if (q->opcode != 0)
                return DNS_NOTIMP;
        if (questions != 1 || answers || authorities || additional > ADDITIONAL_MAX)
                return DNS_FORMERR;
        take_question(r, q);
        for (uint16_t i = 0; !r->failed && i < additional; i++)
                take_additional(r, q);
        if (r->failed || r->at != r->n)
                return DNS_FORMERR;
        return q->edns_version > 0 ? DNS_BADVERS : DNS_NOERROR;
}

int dns_parse(const uint8_t *message, size_t n, struct dns_query *ret, enum dns_rcode *ret_rcode)
{
        struct reader r = {.bytes = message, .n = n};
        struct dns_query q = {.id = take16(&r)};
        uint16_t flags = take16(&r);
        enum dns_rcode rcode;

        if (n < HEADER_BYTES || (flags & FLAG_QR))
                return DNS_E_DROP;
        q.opcode = (uint8_t)(flags >> 11 & 0xf);
        q.recursion_desired = flags & FLAG_RD;
        q.checking_disabled = flags & FLAG_CD;
        rcode = take_sections(&r, &q);
        *ret = q;
        if (rcode == DNS_NOERROR)
                return 0;
        *ret_rcode = rcode;
        return DNS_E_RCODE;
}

bool dns_query_text(const struct dns_query *q, char ret_text[DNS_TEXT_BYTES])
{
        size_t n = 0;

        for (size_t at = 0; q->name[at]; at += 1u + q->name[at]) {
                if (n)
                        ret_text[n++] = '.';
                for (size_t i = 1; i <= q->name[at]; i++) {
                        uint8_t c = q->name[at + i];

                        if (c <= ' ' || c >= 0x7f || c == '.')
                                return false;
                        ret_text[n++] = (char)c;
                }
        }
        ret_text[n] = '\0';
        return true;
}

static bool is_label(const uint8_t *label, const char *text)
{
        size_t n = strlen(text);

        if (label[0] != n)
                return false;
        for (size_t i = 0; i < n; i++)
                if ((label[1 + i] | 0x20) != text[i])
                        return false;
        return true;
}

bool dns_query_reverse_ipv4(const struct dns_query *q, uint32_t *ret_address)
{
        const uint8_t *at = q->name;
        uint32_t address = 0;

        for (unsigned shift = 0; shift < 32; shift += 8) {
                unsigned value = 0;

                if (at[0] < 1 || at[0] > 3 || (at[0] > 1 && at[1] == '0'))
                        return false;
                for (unsigned i = 1; i <= at[0]; i++) {
                        if (at[i] < '0' || at[i] > '9')
                                return false;
                        value = value * 10 + (at[i] - '0');
                }
                if (value > 255)
                        return false;
                address |= value << shift;
                at += 1 + at[0];
        }
        if (!is_label(at, "in-addr") || !is_label(at + 8, "arpa") || at[13] != 0)
                return false;
        *ret_address = address;
        return true;
}

/* ---- writing: a cursor that never passes the room; what did not fit is undone by whoever wrote it */

struct writer {
        uint8_t *bytes;
        size_t at, room;
        bool full;
};

static void put(struct writer *w, const void *from, size_t n)
{
        if (w->full || n > w->room - w->at) {
                w->full = true;
                return;
        }
        if (n)
                memcpy(w->bytes + w->at, from, n);
        w->at += n;
}

static void put8(struct writer *w, unsigned value)
{
        uint8_t b = (uint8_t)value;

        put(w, &b, 1);
}

static void put16(struct writer *w, unsigned value)
{
        uint8_t b[] = {(uint8_t)(value >> 8), (uint8_t)value};

        put(w, b, sizeof(b));
}

static void put32(struct writer *w, uint32_t value)
{
        put16(w, value >> 16);
        put16(w, value & 0xffff);
}

static void set16(uint8_t *at, size_t value)
{
        at[0] = (uint8_t)(value >> 8);
        at[1] = (uint8_t)value;
}

static void put_name(struct writer *w, const char *text)
{
        while (*text) {
                size_t n = strcspn(text, ".");

                put8(w, (unsigned)n);
                put(w, text, n);
                text += n + (text[n] == '.');
        }
        put8(w, 0);
}

/* Owner (a pointer to the question's name), type, class, TTL, and the place of the size of what follows. */
static size_t begin_record(struct writer *w, enum dns_type type, uint32_t ttl_s)
{
        put16(w, POINTER_BITS << 8 | HEADER_BYTES);
        put16(w, type);
        put16(w, DNS_CLASS_IN);
        put32(w, ttl_s);
        put16(w, 0);
        return w->at;
}

/* Answers how many records it wrote. */
static unsigned put_answers(struct writer *w, const struct dns_reply *r)
{
        size_t start;

        if (r->has_address) {
                start = begin_record(w, DNS_TYPE_A, r->ttl_s);
                put32(w, r->address);
        } else if (r->ptr) {
                start = begin_record(w, DNS_TYPE_PTR, r->ttl_s);
                put_name(w, r->ptr);
        } else {
                return 0;
        }
        if (!w->full)
                set16(w->bytes + start - 2, w->at - start);
        return 1;
}

static void put_error(struct writer *w, enum dns_extended_error error, const char *text)
{
        size_t before = w->at, n = text ? strlen(text) : 0;

        put16(w, OPTION_EDE);
        put16(w, (unsigned)(2 + n));
        put16(w, error);
        put(w, text, n);
        if (w->full) { /* an explanation is left out before anything else is */
                w->full = false;
                w->at = before;
        }
}

static void put_opt(struct writer *w, const struct dns_query *q, const struct dns_reply *r)
{
        size_t start;

        put8(w, 0);
        put16(w, DNS_TYPE_OPT);
        put16(w, DNS_REPLY_MAX_BYTES);
        put8(w, (unsigned)r->rcode >> 4);
        put8(w, 0);
        put16(w, q->dnssec_ok ? FLAG_DO : 0);
        put16(w, 0);
        start = w->at;
        if (w->full)
                return;
        if (r->has_error)
                put_error(w, r->error, r->error_text);
        if (r->more_text)
                put_error(w, DNS_EDE_OTHER, r->more_text);
        set16(w->bytes + start - 2, w->at - start);
}

#define OPT_BYTES 11u

size_t dns_build(const struct dns_query *q, const struct dns_reply *r, uint8_t *to, size_t room)
{
        struct writer w = {.bytes = to, .room = q->has_edns ? room - OPT_BYTES : room};
        unsigned flags = FLAG_QR | FLAG_RA | (unsigned)q->opcode << 11 | (r->rcode & 0xfu), answers;
        size_t before;

        assert(room >= DNS_PLAIN_MAX_BYTES); /* header, question and OPT fit in any case */
        flags |= q->recursion_desired ? FLAG_RD : 0;
        flags |= q->checking_disabled ? FLAG_CD : 0;
        put16(&w, q->id);
        put16(&w, flags);
        put16(&w, q->has_question);
        put16(&w, 0);
        put16(&w, 0);
        put16(&w, q->has_edns);
        if (q->has_question) {
                put(&w, q->name, q->name_n);
                put16(&w, q->type);
                put16(&w, q->class);
        }
        before = w.at;
        answers = put_answers(&w, r);
        if (w.full) {
                w.full = false;
                w.at = before;
                answers = 0;
                set16(to + 2, flags | FLAG_TC);
        }
        set16(to + 6, answers);
        w.room = room;
        if (q->has_edns)
                put_opt(&w, q, r);
        return w.at;
}

size_t dns_query_udp_room(const struct dns_query *q)
{
        if (!q->has_edns || q->udp_bytes < DNS_PLAIN_MAX_BYTES)
                return DNS_PLAIN_MAX_BYTES;
        return q->udp_bytes < DNS_REPLY_MAX_BYTES ? q->udp_bytes : DNS_REPLY_MAX_BYTES;
}
