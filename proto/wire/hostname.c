/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/hostname.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/parse.h"

#define V6_GROUPS 8

/* ASCII only, whatever the locale: U+212A is no k. */
static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_label_byte(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* c is lower case. */
static int digit_value(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return 16;
}

static bool all_digits(const char *text, size_t n, int base)
{
        for (size_t i = 0; i < n; i++)
                if (digit_value(text[i]) >= base)
                        return false;
        return true;
}

/* Lower-cases into to, without one trailing dot. Answers the length, 0 if it is no chain of labels. */
static size_t copy_labels(const char *text, size_t n, char to[HOSTNAME_MAX_BYTES + 1])
{
        size_t label_n = 0;

        if (n > 0 && text[n - 1] == '.')
                n--;
        if (n == 0 || n > HOSTNAME_MAX_BYTES)
                return 0;
        for (size_t i = 0; i < n; i++) {
                to[i] = lower(text[i]);
                if (to[i] == '.') {
                        if (label_n == 0)
                                return 0;
                        label_n = 0;
                        continue;
                }
                if (!is_label_byte(to[i]) || ++label_n > HOSTNAME_LABEL_MAX)
                        return 0;
        }
        to[n] = '\0';
        return label_n == 0 ? 0 : n;
}

/* Decides between a name and an IPv4 literal: is the last label decimal or 0x hex? Then no resolver may see it as a
 * name. */
static bool ends_in_number(const char *text)
{
        const char *dot = strrchr(text, '.');
        const char *last = dot ? dot + 1 : text;

        if (last[0] == '0' && last[1] == 'x')
                return all_digits(last + 2, strlen(last + 2), 16);
        return all_digits(last, strlen(last), 10);
}

/* One part of an inet_aton form: 0x is hexadecimal, a leading 0 octal. */
static bool parse_part(const char *text, size_t n, uint64_t most, uint64_t *ret)
{
        uint64_t value = 0;
        int base = 10;

        if (n >= 2 && text[0] == '0' && text[1] == 'x') {
                base = 16;
                text += 2;
                n -= 2;
        } else if (n > 1 && text[0] == '0') {
                base = 8;
        }
        if (n == 0 || !all_digits(text, n, base))
                return false;
        for (size_t i = 0; i < n; i++) {
                value = value * (uint64_t)base + (uint64_t)digit_value(text[i]);
                if (value > most)
                        return false;
        }
        *ret = value;
        return true;
}

/* The forms of inet_aton(3), of one to four parts; the last part fills what is left of the 32 bits. */
static bool parse_old_ipv4(const char *text, uint8_t ret_address[4])
{
        uint64_t value = 0;

        for (unsigned part = 0; part < 4; part++) {
                size_t n = strcspn(text, ".");
                bool is_last = text[n] == '\0';
                uint64_t most = is_last ? UINT32_MAX >> (8 * part) : 255;
                uint64_t number;

                if (!parse_part(text, n, most, &number))
                        return false;
                value |= is_last ? number : number << (24 - 8 * part);
                if (is_last) {
                        for (unsigned i = 0; i < 4; i++)
                                ret_address[i] = (uint8_t)(value >> (24 - 8 * i));
                        return true;
                }
                text += n + 1;
        }
        return false;
}

/* inet_pton() on bytes that need not end in NUL. */
static bool parse_strict(int family, const char *text, size_t n, uint8_t *ret_address)
{
        char copy[INET6_ADDRSTRLEN];

        if (n == 0 || n >= sizeof(copy) || memchr(text, '\0', n))
                return false;
        memcpy(copy, text, n);
        copy[n] = '\0';
        return inet_pton(family, copy, ret_address) == 1;
}

static int parse_bracketed(const char *text, size_t n, struct hostname *ret)
{
        uint8_t address[16];

        if (n < 2 || text[n - 1] != ']' || !parse_strict(AF_INET6, text + 1, n - 2, address))
                return HOSTNAME_E_MALFORMED;
        hostname_from_address(HOST_IPV6, address, ret);
        return 0;
}

int hostname_parse(const char *text, size_t n, struct hostname *ret)
{
        struct hostname host = {.kind = HOST_NAME};
        uint8_t address[4];

        if (n > 0 && text[0] == '[')
                return parse_bracketed(text, n, ret);
        host.length = (uint8_t)copy_labels(text, n, host.text);
        if (host.length == 0)
                return HOSTNAME_E_MALFORMED;
        if (!ends_in_number(host.text)) {
                *ret = host;
                return 0;
        }
        if (!parse_old_ipv4(host.text, address))
                return HOSTNAME_E_MALFORMED;
        hostname_from_address(HOST_IPV4, address, ret);
        return 0;
}

int hostname_parse_with_port(const char *text, size_t n, struct hostname *ret, uint16_t *ret_port)
{
        const char *bracket = n > 0 && text[0] == '[' ? memchr(text, ']', n) : NULL;
        const char *after_host = bracket ? bracket + 1 : memchr(text, ':', n);
        size_t host_n = after_host ? (size_t)(after_host - text) : n;
        uint16_t port = 0;
        struct hostname host;
        int r;

        if (host_n < n && (text[host_n] != ':' || parse_port(text + host_n + 1, n - host_n - 1, &port) < 0))
                return HOSTNAME_E_MALFORMED;
        r = hostname_parse(text, host_n, &host);
        if (r != 0)
                return r;
        *ret = host;
        *ret_port = port;
        return 0;
}

int hostname_parse_address(const char *text, size_t n, struct hostname *ret)
{
        uint8_t address[16];

        if (parse_strict(AF_INET, text, n, address))
                hostname_from_address(HOST_IPV4, address, ret);
        else if (parse_strict(AF_INET6, text, n, address))
                hostname_from_address(HOST_IPV6, address, ret);
        else
                return HOSTNAME_E_MALFORMED;
        return 0;
}

/* The first of the longest runs of zero groups, of two at least (RFC 5952, 4.2); *ret_n is 0 where there is none. */
static size_t longest_zeros(const uint16_t groups[V6_GROUPS], size_t groups_n, size_t *ret_n)
{
        size_t best = 0, best_n = 1;

        for (size_t i = 0; i < groups_n; i++) {
                size_t n = 0;

                while (i + n < groups_n && groups[i + n] == 0)
                        n++;
                if (n > best_n) {
                        best = i;
                        best_n = n;
                }
                i += n;
        }
        *ret_n = best_n > 1 ? best_n : 0;
        return best;
}

size_t hostname_format_ipv6(const uint8_t address[16], bool dotted, char ret_text[HOSTNAME_IPV6_TEXT_BYTES])
{
        size_t groups_n = dotted ? V6_GROUPS - 2 : V6_GROUPS;
        uint16_t groups[V6_GROUPS];
        size_t zeros, zeros_n;
        char *at = ret_text;

        for (size_t i = 0; i < V6_GROUPS; i++)
                groups[i] = (uint16_t)(address[2 * i] << 8 | address[2 * i + 1]);
        zeros = longest_zeros(groups, groups_n, &zeros_n);
        for (size_t i = 0; i < groups_n;) {
                if (zeros_n && i == zeros) {
                        at = stpcpy(at, "::");
                        i += zeros_n;
                        continue;
                }
                at += sprintf(at, "%s%x", i == 0 || at[-1] == ':' ? "" : ":", groups[i]);
                i++;
        }
        if (dotted)
                at += sprintf(at, "%s%u.%u.%u.%u", at[-1] == ':' ? "" : ":", address[12], address[13], address[14],
                        address[15]);
        return (size_t)(at - ret_text);
}

void hostname_from_address(enum host_kind kind, const uint8_t *address, struct hostname *ret)
{
        /* RFC 5952, 5: an address of a well-known prefix that carries an IPv4 address shows it. */
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        struct hostname host = {.kind = kind};

        if (kind == HOST_IPV4) {
                memcpy(host.address, address, 4);
                host.length =
                        (uint8_t)sprintf(host.text, "%u.%u.%u.%u", address[0], address[1], address[2], address[3]);
        } else {
                memcpy(host.address, address, 16);
                host.length =
                        (uint8_t)hostname_format_ipv6(address, memcmp(address, mapped, sizeof(mapped)) == 0, host.text);
        }
        *ret = host;
}
