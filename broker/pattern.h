/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One pattern of a rule (INTERFACES.md, Patterns). Pure; libpsl and libidn2 are asked when it is parsed, never when it
 * is matched.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/address.h"
#include "proto/wire/hostname.h"

enum pattern_kind {
        PATTERN_EXACT,          /* example.org */
        PATTERN_BELOW,          /* *.example.org */
        PATTERN_BELOW_AND_SELF, /* **.example.org */
        PATTERN_PREFIX,         /* an address or a CIDR */
};

struct pattern {
        enum pattern_kind kind;
        struct prefix prefix; /* PATTERN_PREFIX */
        uint8_t name_n;
        char name[HOSTNAME_MAX_BYTES + 1]; /* canonical, without the stars */
};

#define PATTERN_E_INVALID 1

/*
 * 0, or PATTERN_E_INVALID with a message that has the right spelling where there is one. text may hold any byte; the
 * message holds of it at most a checked spelling. PATTERN_MESSAGE_BYTES are room enough.
 */
#define PATTERN_MESSAGE_BYTES 640
int pattern_parse(const char *text, size_t n, struct pattern *ret, char *ret_message, size_t message_room);

bool pattern_matches(const struct pattern *pattern, const struct hostname *host);

/* Does a match every host that b matches? Of two patterns that have a host in common one covers the other. */
bool pattern_covers(const struct pattern *a, const struct pattern *b);

/*
 * Greater than 0 if a is the more specific of two that match the same host: exact, longer suffix or prefix, `*.` before
 * `**.`.
 */
int pattern_compare(const struct pattern *a, const struct pattern *b);

/* As it is written in a policy. */
#define PATTERN_TEXT_BYTES (HOSTNAME_MAX_BYTES + 4)
void pattern_format(const struct pattern *pattern, char ret_text[PATTERN_TEXT_BYTES]);
