/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Addresses, prefixes and the floor (INTERFACES.md, "The floor"): what no policy can reach. Pure. Addresses are struct
 * hostname of kind HOST_IPV4 or HOST_IPV6; families are never compared with each other.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/hostname.h"

struct prefix {
        enum host_kind kind; /* HOST_IPV4 or HOST_IPV6 */
        uint8_t bits;
        uint8_t address[16]; /* host part zero */
};

#define PREFIX_E_MALFORMED 1
#define PREFIX_E_HOST_PART 2 /* "10.0.0.1/8": bits set behind the prefix; *ret holds the right spelling */

/* "203.0.114.0/24", "2001:4860::/32", or an address alone (all bits). */
int prefix_parse(const char *text, size_t n, struct prefix *ret);

void prefix_from_address(const struct hostname *address, struct prefix *ret); /* all bits */

/* Canonical, with /bits unless it is a whole address. */
#define PREFIX_TEXT_MAX 64
void prefix_format(const struct prefix *p, char ret_text[PREFIX_TEXT_MAX]);

bool prefix_contains(const struct prefix *p, const struct hostname *address);

/*
 * The floor: compiled in, plus what the operator and the host add. An instance is immutable while requests are judged;
 * a zeroed one is the built-in floor.
 */
struct floor_range {
        struct prefix prefix;
        char text[PREFIX_TEXT_MAX];
};

struct floor {
        struct floor_range *ranges; /* the operator's `floor.deny`, the host's own interfaces */
        size_t ranges_n;
        char **names; /* the operator's `floor.deny_names`, canonical; each with all below it */
        size_t names_n;
};

int floor_add_range(struct floor *floor, const struct prefix *prefix); /* 0 or -ENOMEM */
int floor_add_name(struct floor *floor, const struct hostname *name);  /* 0 or -ENOMEM */
void floor_done(struct floor *floor);

/*
 * NULL, or what denies it: the range ("10.0.0.0/8") or the list's name ("localhost"). Points into static memory or
 * *floor.
 */
const char *floor_denies_address(const struct floor *floor, const struct hostname *address);
const char *floor_denies_name(const struct floor *floor, const struct hostname *name);
