/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What one step of an activation has to say for itself: to the host at once, to `wbctl info` later. Fixed memory: texts
 * are cut, facts beyond the last are dropped (a step that needs more has too many). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wb.pb-c.h"

#define REPORT_FACTS_MAX 8

struct report_fact {
        char name[24];
        char value[80];
};

struct report {
        const char *name; /* of the step; static */
        bool ok;
        uint64_t duration_ns;
        char detail[160]; /* for a person */
        size_t facts_n;
        struct report_fact facts[REPORT_FACTS_MAX];
};

void report_detail(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_fact(struct report *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "CONTEXT: the error's text" as the detail; answers error, a negative errno. */
int report_errno(struct report *r, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same as a message, whose texts are r's: it lives as long as r and *storage do. */
struct report_message {
        Wb__ActivateStep step;
        Wb__Fact facts[REPORT_FACTS_MAX];
        Wb__Fact *fact_pointers[REPORT_FACTS_MAX];
};
void report_to_message(struct report *r, struct report_message *storage);
