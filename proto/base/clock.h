/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one place where the time is asked for; pure files get it passed in. Nanoseconds throughout. */

#include <stdint.h>

#define NSEC_PER_SEC  UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_USEC UINT64_C(1000)
#define MSEC_PER_SEC  UINT64_C(1000)

/* CLOCK_MONOTONIC: for every duration and deadline. */
uint64_t clock_monotonic_ns(void);

/* CLOCK_REALTIME since 1970: for what is shown or recorded. */
uint64_t clock_realtime_ns(void);

/* RFC 3339, UTC, microseconds: "2026-01-02T03:04:05.678901Z". */
#define CLOCK_TEXT_BYTES 28
void clock_format(uint64_t realtime_ns, char ret_text[CLOCK_TEXT_BYTES]);
