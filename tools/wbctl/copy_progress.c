/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tools/wbctl/copy.h"

#define FIRST_NS (NSEC_PER_SEC / 2) /* what is done sooner needs no line */
#define EACH_NS  (NSEC_PER_SEC / 5)

void copy_progress_begin(struct copy_progress *p)
{
        *p = (struct copy_progress){.shown = isatty(STDERR_FILENO) == 1, .started_ns = clock_monotonic_ns()};
        p->next_ns = p->started_ns + FIRST_NS;
}

static double in_unit(uint64_t bytes, const char **ret_unit)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
        double value = (double)bytes;
        size_t i = 0;

        for (; value >= 1024 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
                value /= 1024;
        *ret_unit = units[i];
        return value;
}

static void show(struct copy_progress *p, uint64_t now_ns)
{
        const char *unit, *rate_unit;
        double done = in_unit(p->done_bytes, &unit);
        double seconds = (double)(now_ns - p->started_ns) / 1e9;
        double rate = in_unit((uint64_t)((double)p->done_bytes / seconds), &rate_unit);

        fprintf(stderr, "\r\033[K%" PRIu64 " files, %.1f %s, %.1f %s/s", p->entries, done, unit, rate, rate_unit);
        if (p->file_bytes)
                fprintf(stderr, ", %.0f %% of this one", 100.0 * (double)p->file_at / (double)p->file_bytes);
        p->line = true;
}

static void maybe_show(struct copy_progress *p)
{
        uint64_t now_ns;

        if (!p->shown)
                return;
        now_ns = clock_monotonic_ns();
        if (now_ns < p->next_ns)
                return;
        p->next_ns = now_ns + EACH_NS;
        show(p, now_ns);
}

void copy_progress_file(struct copy_progress *p, uint64_t bytes)
{
        p->entries++;
        p->file_bytes = bytes;
        p->file_at = 0;
        maybe_show(p);
}

void copy_progress_move(struct copy_progress *p, uint64_t offset, uint64_t n)
{
        p->done_bytes += n;
        p->file_at = offset + n;
        maybe_show(p);
}

void copy_progress_end(struct copy_progress *p)
{
        if (p->line)
                fprintf(stderr, "\r\033[K");
        p->line = false;
}
