/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

static uint64_t now_ns(clockid_t id)
{
        struct timespec ts;
        int r = clock_gettime(id, &ts);

        assert(r == 0);
        (void)r;
        return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
        return now_ns(CLOCK_MONOTONIC);
}

uint64_t clock_realtime_ns(void)
{
        return now_ns(CLOCK_REALTIME);
}

void clock_format(uint64_t realtime_ns, char ret_text[CLOCK_TEXT_BYTES])
{
        time_t seconds = (time_t)(realtime_ns / NSEC_PER_SEC);
        struct tm tm;

        gmtime_r(&seconds, &tm);
        /* uint64 nanoseconds end in the year 2554, so four digits suffice. */
        (void)snprintf(ret_text, CLOCK_TEXT_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
                (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100,
                (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100,
                (unsigned)(realtime_ns % NSEC_PER_SEC / NSEC_PER_USEC));
}
