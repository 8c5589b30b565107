/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How many names a VM may ask for. Names are a way out by themselves where a wildcard allows what the guest makes up,
 * so both the questions and the different names in them are counted, by the minute. Fixed memory. Pure: the caller
 * passes the time.
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/hostname.h"

/* A browser that opens a page asks for some dozens of names, each for three types; a package manager for a few. */
#define NAME_BUDGET_QUERIES 1200u
#define NAME_BUDGET_NAMES   256u

/*
 * Of requests whose names are looked up: here a name leaves the machine, so what counts is how much a guest can say by
 * it. A name of some hundred bytes of its choice: less than 2 KiB a second.
 */
#define NAME_BUDGET_LOOKUPS      6000u
#define NAME_BUDGET_LOOKUP_NAMES 1024u

struct name_budget {
        uint64_t seed;
        uint32_t queries_most;
        uint32_t names_most;
        uint64_t began_ns; /* of this minute */
        uint32_t queries;
        uint32_t names_n;
        bool told;                                /* that it is used up: once a minute is enough for a log */
        uint64_t names[NAME_BUDGET_LOOKUP_NAMES]; /* their hashes */
};

/* names_most is at most NAME_BUDGET_LOOKUP_NAMES. seed makes the hashes unpredictable. */
void name_budget_init(
        struct name_budget *b, uint32_t queries_most, uint32_t names_most, uint64_t seed, uint64_t now_ns);

/* Until the minute ends. */
uint64_t name_budget_wait_ns(const struct name_budget *b, uint64_t now_ns);

/*
 * Takes a question about name (NULL: about none) from the budget. False: it is used up until the minute ends;
 * *ret_first is then true the first time that this happens in the minute.
 */
bool name_budget_take(struct name_budget *b, const struct hostname *name, uint64_t now_ns, bool *ret_first);
