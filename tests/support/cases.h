/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The JSON files of tests/cases as data of CUnit tests. A test walks one file and judges each case; a failing one is
 * named with its id.
 *
 *     CASES_FOREACH ("hosts.json", c)
 *             CASE_CHECK(c, hostname_parse(...) == 0);
 */

#include <CUnit/Basic.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct cases {
        json_t *array;
        size_t at;
};

/* The file in the directory that WB_CASES names; ends the program with a message if it cannot be read or is empty. */
struct cases cases_open(const char *file);
json_t *cases_next(struct cases *cases); /* NULL, and all is freed, after the last */

#define CASES_FOREACH(file, c)                                                                                         \
        for (struct cases c##_cases = cases_open(file); c##_cases.array;)                                              \
                for (json_t * c; (c = cases_next(&c##_cases));)

/* Fails the running test and says which case it was if ok is false. */
void case_check(const json_t *c, bool ok, const char *what, const char *file, unsigned line);
#define CASE_CHECK(c, ok) case_check((c), (ok), #ok, __FILE__, __LINE__)

/* A member's text or NULL. */
const char *case_text(const json_t *c, const char *key);

/* Is text the member, or one of the member's texts if that is a list? */
bool case_is_one_of(const json_t *c, const char *key, const char *text);

/* KEY as text, KEY_hex as bytes or KEY_parts as [text, times]...; the caller frees. NULL if the case has none of them.
 */
char *case_bytes(const json_t *c, const char *key, size_t *ret_n);

/* Runs the tests (ended by CU_TEST_INFO_NULL) as one suite; answers main()'s exit status. */
int cases_run(const char *suite, CU_TestInfo *tests);
