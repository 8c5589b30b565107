/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * DNS messages (RFC 1035, 6891, 8914) as far as a stub for one machine needs them: a question is read, strictly, and
 * the answer to it is written. Names in questions keep their bytes, upper and lower case included (0x20). Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNS_NAME_MAX_BYTES  255u /* on the wire, RFC 1035, 2.3.4 */
#define DNS_QUERY_MAX_BYTES 4096u
#define DNS_REPLY_MAX_BYTES 1232u /* fits the least path of IPv6; what DNS flag day 2020 settled on */
#define DNS_PLAIN_MAX_BYTES 512u  /* over UDP without EDNS */

enum dns_type {
        DNS_TYPE_A = 1,
        DNS_TYPE_PTR = 12,
        DNS_TYPE_AAAA = 28,
        DNS_TYPE_OPT = 41,
        DNS_TYPE_SVCB = 64,
        DNS_TYPE_HTTPS = 65,
};

enum dns_rcode {
        DNS_NOERROR = 0,
        DNS_FORMERR = 1,
        DNS_SERVFAIL = 2,
        DNS_NXDOMAIN = 3,
        DNS_NOTIMP = 4,
        DNS_REFUSED = 5,
        DNS_BADVERS = 16,
};

/* RFC 8914. */
enum dns_extended_error {
        DNS_EDE_OTHER = 0,
        DNS_EDE_NOT_READY = 14,
        DNS_EDE_BLOCKED = 15,
        DNS_EDE_NOT_SUPPORTED = 21,
        DNS_EDE_NO_REACHABLE_AUTHORITY = 22,
};

#define DNS_CLASS_IN 1u

struct dns_query {
        uint16_t id;
        uint8_t opcode;
        bool recursion_desired;
        bool checking_disabled;

        bool has_question;
        uint16_t type, class;
        uint8_t name_n;
        uint8_t name[DNS_NAME_MAX_BYTES]; /* as sent, without compression */

        bool has_edns;
        bool dnssec_ok;
        uint8_t edns_version;
        uint16_t udp_bytes; /* that the client takes */
};

/*
 * Reads a question. 0; DNS_E_DROP (no question at all: to answer it could begin a loop); DNS_E_RCODE: it is to be
 * answered with *ret_rcode, and *ret holds what of it was understood.
 */
#define DNS_E_DROP  1
#define DNS_E_RCODE 2
int dns_parse(const uint8_t *message, size_t n, struct dns_query *ret, enum dns_rcode *ret_rcode);

/*
 * The name as text, without the root's dot: "" is the root. False if it has a label that no host's name has: a dot in
 * it, a control or a non-ASCII byte.
 */
#define DNS_TEXT_BYTES 256u
bool dns_query_text(const struct dns_query *q, char ret_text[DNS_TEXT_BYTES]);

/* Is it 1.18.18.198.in-addr.arpa or the like? Host order. */
bool dns_query_reverse_ipv4(const struct dns_query *q, uint32_t *ret_address);

struct dns_reply {
        enum dns_rcode rcode;
        bool has_address; /* an A record */
        uint32_t address; /* host order */
        const char *ptr;  /* a PTR record, or NULL; a canonical name */
        uint32_t ttl_s;
        bool has_error; /* an extended error */
        enum dns_extended_error error;
        const char *error_text; /* printable, or NULL */
        const char *more_text;  /* a second extended error, DNS_EDE_OTHER, with this as its text; or NULL */
};

/*
 * Writes the answer to q into room bytes (DNS_PLAIN_MAX_BYTES at least). What of the explanations does not fit is left
 * out; a record that does not fit leaves TC. Answers its size.
 */
size_t dns_build(const struct dns_query *q, const struct dns_reply *r, uint8_t *to, size_t room);

/* How large an answer to q may be over UDP. */
size_t dns_query_udp_room(const struct dns_query *q);
