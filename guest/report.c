/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The codec refuses control bytes in texts; a file name that has some must not cost the report. */
static void blunt(char *text)
{
        for (; *text; text++)
                if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f)
                        *text = '?';
}

void report_detail(struct report *r, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(r->detail, sizeof(r->detail), format, ap);
        va_end(ap);
        blunt(r->detail);
}

void report_fact(struct report *r, const char *name, const char *format, ...)
{
        struct report_fact *f = &r->facts[r->facts_n];
        va_list ap;

        if (r->facts_n == REPORT_FACTS_MAX)
                return;
        r->facts_n++;
        (void)snprintf(f->name, sizeof(f->name), "%s", name);
        va_start(ap, format);
        (void)vsnprintf(f->value, sizeof(f->value), format, ap);
        va_end(ap);
        blunt(f->value);
}

int report_errno(struct report *r, int error, const char *format, ...)
{
        const char *text = strerrordesc_np(-error);
        va_list ap;
        size_t n;

        va_start(ap, format);
        (void)vsnprintf(r->detail, sizeof(r->detail), format, ap);
        va_end(ap);
        n = strlen(r->detail);
        (void)snprintf(r->detail + n, sizeof(r->detail) - n, ": %s", text ? text : "unknown error");
        blunt(r->detail);
        return error;
}

void report_to_message(struct report *r, struct report_message *storage)
{
        storage->step = (Wb__ActivateStep)WB__ACTIVATE_STEP__INIT;
        storage->step.name = (char *)(uintptr_t)r->name;
        storage->step.ok = r->ok;
        storage->step.detail = r->detail;
        storage->step.duration_ns = r->duration_ns;
        storage->step.n_evidence = r->facts_n;
        storage->step.evidence = storage->fact_pointers;
        for (size_t i = 0; i < r->facts_n; i++) {
                storage->facts[i] = (Wb__Fact)WB__FACT__INIT;
                storage->facts[i].name = r->facts[i].name;
                storage->facts[i].value = r->facts[i].value;
                storage->fact_pointers[i] = &storage->facts[i];
        }
}
