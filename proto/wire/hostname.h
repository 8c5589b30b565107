/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The canonical host (INTERFACES.md, "Canonical host"): a request's target is canonicalised once, and that one spelling
 * is matched, resolved, dialled, compared with SNI and logged. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTNAME_MAX_BYTES 253 /* RFC 1035 3.1: 255 on the wire, without the length bytes of first label and root */
#define HOSTNAME_LABEL_MAX 63

enum host_kind {
        HOST_NAME,
        HOST_IPV4,
        HOST_IPV6,
};

struct hostname {
        enum host_kind kind;
        uint8_t length;                    /* of text */
        uint8_t address[16];               /* network order; IPv4 in the first 4; zero for a name */
        char text[HOSTNAME_MAX_BYTES + 1]; /* canonical: RFC 5952 without brackets for IPv6 */
};

#define HOSTNAME_E_MALFORMED 1

/*
 * HOST as it stands where a request names its target; IPv6 in brackets only. 0 or HOSTNAME_E_MALFORMED.
 */
int hostname_parse(const char *text, size_t n, struct hostname *ret);

/*
 * HOST or HOST:PORT. *ret_port is 0 where none was given. 0 or HOSTNAME_E_MALFORMED.
 */
int hostname_parse_with_port(const char *text, size_t n, struct hostname *ret, uint16_t *ret_port);

/*
 * A bare address as the operator or a DNS answer spells it: dotted quad, or RFC 4291 text without brackets. Old forms
 * are refused.
 */
int hostname_parse_address(const char *text, size_t n, struct hostname *ret);

/* From binary; kind is HOST_IPV4 (4 bytes) or HOST_IPV6 (16 bytes). */
void hostname_from_address(enum host_kind kind, const uint8_t *address, struct hostname *ret);

/*
 * RFC 5952 text of an IPv6 address, NUL-terminated; dotted: the last 32 bits as a dotted quad. Answers the length. The
 * canonical text is dotted for ::ffff:0:0/96 alone.
 */
#define HOSTNAME_IPV6_TEXT_BYTES 46 /* INET6_ADDRSTRLEN */
size_t hostname_format_ipv6(const uint8_t address[16], bool dotted, char ret_text[HOSTNAME_IPV6_TEXT_BYTES]);
