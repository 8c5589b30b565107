/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* INTERFACES.md, The floor; from the IANA special-purpose registries and what clouds serve to their machines. */
static const struct {
        const char *text;
        struct prefix prefix;
} floor_ranges[] = {
        {"0.0.0.0/8", {HOST_IPV4, 8, {0}}},                          /* dials the host's own loopback */
        {"10.0.0.0/8", {HOST_IPV4, 8, {10}}},                        /* private (RFC 1918) */
        {"100.64.0.0/10", {HOST_IPV4, 10, {100, 64}}},               /* carrier NAT (RFC 6598); clouds' metadata */
        {"127.0.0.0/8", {HOST_IPV4, 8, {127}}},                      /* loopback */
        {"169.254.0.0/16", {HOST_IPV4, 16, {169, 254}}},             /* link-local, metadata */
        {"172.16.0.0/12", {HOST_IPV4, 12, {172, 16}}},               /* private */
        {"192.0.0.0/24", {HOST_IPV4, 24, {192}}},                    /* IETF (RFC 6890); metadata */
        {"192.0.2.0/24", {HOST_IPV4, 24, {192, 0, 2}}},              /* documentation */
        {"192.88.99.0/24", {HOST_IPV4, 24, {192, 88, 99}}},          /* 6to4 relays (RFC 7526) */
        {"192.168.0.0/16", {HOST_IPV4, 16, {192, 168}}},             /* private */
        {"198.18.0.0/15", {HOST_IPV4, 15, {198, 18}}},               /* benchmarks (RFC 2544) */
        {"198.51.100.0/24", {HOST_IPV4, 24, {198, 51, 100}}},        /* documentation */
        {"203.0.113.0/24", {HOST_IPV4, 24, {203, 0, 113}}},          /* documentation */
        {"224.0.0.0/4", {HOST_IPV4, 4, {224}}},                      /* multicast */
        {"240.0.0.0/4", {HOST_IPV4, 4, {240}}},                      /* reserved, broadcast */
        {"168.63.129.16/32", {HOST_IPV4, 32, {168, 63, 129, 16}}},   /* Azure's host endpoint */
        {"::/96", {HOST_IPV6, 96, {0}}},                             /* unspecified, loopback, IPv4-compatible */
        {"::ffff:0:0/96", {HOST_IPV6, 96, {[10] = 0xff, 0xff}}},     /* IPv4-mapped */
        {"::ffff:0:0:0/96", {HOST_IPV6, 96, {[8] = 0xff, 0xff}}},    /* IPv4-translated (RFC 2765) */
        {"64:ff9b::/96", {HOST_IPV6, 96, {0x00, 0x64, 0xff, 0x9b}}}, /* NAT64 (RFC 6052) */
        {"64:ff9b:1::/48", {HOST_IPV6, 48, {0x00, 0x64, 0xff, 0x9b, [5] = 0x01}}}, /* local NAT64 (RFC 8215) */
        {"100::/64", {HOST_IPV6, 64, {0x01}}},                                     /* discard (RFC 6666) */
        {"100:0:0:1::/64", {HOST_IPV6, 64, {0x01, [7] = 0x01}}},                   /* dummy (RFC 9780) */
        {"2001::/23", {HOST_IPV6, 23, {0x20, 0x01}}},                              /* IETF; Teredo */
        {"2001:db8::/32", {HOST_IPV6, 32, {0x20, 0x01, 0x0d, 0xb8}}},              /* documentation */
        {"2002::/16", {HOST_IPV6, 16, {0x20, 0x02}}},                              /* 6to4 */
        {"3fff::/20", {HOST_IPV6, 20, {0x3f, 0xff}}},                              /* documentation (RFC 9637) */
        {"5f00::/16", {HOST_IPV6, 16, {0x5f}}},                                    /* segment routing (RFC 9602) */
        {"fc00::/7", {HOST_IPV6, 7, {0xfc}}},                                      /* unique local; metadata */
        {"fe80::/10", {HOST_IPV6, 10, {0xfe, 0x80}}},                              /* link-local */
        {"fec0::/10", {HOST_IPV6, 10, {0xfe, 0xc0}}},                              /* site-local (RFC 3879) */
        {"ff00::/8", {HOST_IPV6, 8, {0xff}}},                                      /* multicast */
};

/* Each with all names below it. Where no RFC is named: the registry of special-use domain names. */
static const char *const floor_names[] = {
        "localhost", /* RFC 6761 */
        "local",     /* RFC 6762 */
        "internal",  /* ICANN, 2024; clouds' metadata */
        "onion",     /* RFC 7686 */
        "invalid",   /* RFC 6761 */
        "alt",       /* RFC 9476 */
        "home.arpa", /* RFC 8375 */
};

static unsigned family_bits(enum host_kind kind)
{
        return kind == HOST_IPV4 ? 32 : 128;
}

/* "8" of "10.0.0.0/8": no sign, no leading zero. */
static int parse_bits(const char *text, size_t n, unsigned most, uint8_t *ret)
{
        unsigned value = 0;

        if (n == 0 || n > 3 || (n > 1 && text[0] == '0'))
                return PREFIX_E_MALFORMED;
        for (size_t i = 0; i < n; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return PREFIX_E_MALFORMED;
                value = value * 10 + (unsigned)(text[i] - '0');
        }
        if (value > most)
                return PREFIX_E_MALFORMED;
        *ret = (uint8_t)value;
        return 0;
}

/* Clears what is behind the prefix; was there anything? */
static bool clear_host_part(struct prefix *p)
{
        bool had_any = false;

        for (unsigned i = 0; i < sizeof(p->address); i++) {
                unsigned kept_bits = p->bits > 8 * i ? p->bits - 8 * i : 0;
                uint8_t mask = kept_bits >= 8 ? 0xff : (uint8_t)(0xff00 >> kept_bits);

                had_any = had_any || (p->address[i] & ~mask);
                p->address[i] &= mask;
        }
        return had_any;
}

void prefix_from_address(const struct hostname *address, struct prefix *ret)
{
        struct prefix p = {.kind = address->kind, .bits = (uint8_t)family_bits(address->kind)};

        memcpy(p.address, address->address, sizeof(p.address));
        *ret = p;
}

int prefix_parse(const char *text, size_t n, struct prefix *ret)
{
        const char *slash = n ? memchr(text, '/', n) : NULL;
        size_t address_n = slash ? (size_t)(slash - text) : n;
        struct hostname address;
        struct prefix p;
        bool had_host_part;

        if (hostname_parse_address(text, address_n, &address) != 0)
                return PREFIX_E_MALFORMED;
        prefix_from_address(&address, &p);
        if (slash && parse_bits(slash + 1, n - address_n - 1, p.bits, &p.bits) != 0)
                return PREFIX_E_MALFORMED;
        had_host_part = clear_host_part(&p);
        *ret = p;
        return had_host_part ? PREFIX_E_HOST_PART : 0;
}

void prefix_format(const struct prefix *p, char ret_text[PREFIX_TEXT_MAX])
{
        struct hostname address;

        hostname_from_address(p->kind, p->address, &address);
        if (p->bits == family_bits(p->kind))
                (void)snprintf(ret_text, PREFIX_TEXT_MAX, "%.45s", address.text);
        else
                (void)snprintf(ret_text, PREFIX_TEXT_MAX, "%.45s/%u", address.text, p->bits);
}

bool prefix_contains(const struct prefix *p, const struct hostname *address)
{
        unsigned whole = p->bits / 8, rest = p->bits % 8;

        if (address->kind != p->kind || memcmp(p->address, address->address, whole) != 0)
                return false;
        return rest == 0 || ((p->address[whole] ^ address->address[whole]) & (uint8_t)(0xff00 >> rest)) == 0;
}

int floor_add_range(struct floor *floor, const struct prefix *prefix)
{
        struct floor_range *ranges = realloc(floor->ranges, (floor->ranges_n + 1) * sizeof(*ranges));

        if (!ranges)
                return -ENOMEM;
        floor->ranges = ranges;
        ranges[floor->ranges_n].prefix = *prefix;
        prefix_format(prefix, ranges[floor->ranges_n].text);
        floor->ranges_n++;
        return 0;
}

int floor_add_name(struct floor *floor, const struct hostname *name)
{
        char **names = realloc(floor->names, (floor->names_n + 1) * sizeof(char *));

        if (!names)
                return -ENOMEM;
        floor->names = names;
        names[floor->names_n] = strdup(name->text);
        if (!names[floor->names_n])
                return -ENOMEM;
        floor->names_n++;
        return 0;
}

void floor_done(struct floor *floor)
{
        for (size_t i = 0; i < floor->names_n; i++)
                free(floor->names[i]);
        free(floor->names);
        free(floor->ranges);
        *floor = (struct floor){0};
}

const char *floor_denies_address(const struct floor *floor, const struct hostname *address)
{
        for (size_t i = 0; i < sizeof(floor_ranges) / sizeof(*floor_ranges); i++)
                if (prefix_contains(&floor_ranges[i].prefix, address))
                        return floor_ranges[i].text;
        for (size_t i = 0; i < floor->ranges_n; i++)
                if (prefix_contains(&floor->ranges[i].prefix, address))
                        return floor->ranges[i].text;
        return NULL;
}

/* Is name the suffix itself or below it? Only at a label's boundary. */
static bool is_at_or_below(const struct hostname *name, const char *suffix)
{
        size_t n = strlen(suffix);

        if (name->length < n || memcmp(name->text + name->length - n, suffix, n) != 0)
                return false;
        return name->length == n || name->text[name->length - n - 1] == '.';
}

const char *floor_denies_name(const struct floor *floor, const struct hostname *name)
{
        if (name->kind != HOST_NAME)
                return NULL;
        for (size_t i = 0; i < sizeof(floor_names) / sizeof(*floor_names); i++)
                if (is_at_or_below(name, floor_names[i]))
                        return floor_names[i];
        for (size_t i = 0; i < floor->names_n; i++)
                if (is_at_or_below(name, floor->names[i]))
                        return floor->names[i];
        return NULL;
}
