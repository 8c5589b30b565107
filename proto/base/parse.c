/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/parse.h"

#include <errno.h>
#include <string.h>

#define DURATION_MOST_MS (UINT64_C(10) * 366 * 24 * 3600 * 1000)

/* Digits from *text on; leaves *text behind them. */
static int take_number(const char **text, uint64_t *ret)
{
        const char *p = *text;
        uint64_t value = 0;

        if (*p < '0' || *p > '9')
                return -EINVAL;
        for (; *p >= '0' && *p <= '9'; p++)
                if (__builtin_mul_overflow(value, 10, &value) ||
                        __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
                        return -ERANGE;
        *text = p;
        *ret = value;
        return 0;
}

int parse_u64(const char *text, uint64_t most, uint64_t *ret)
{
        uint64_t value;
        int r = take_number(&text, &value);

        if (r < 0)
                return r;
        if (*text)
                return -EINVAL;
        if (value > most)
                return -ERANGE;
        *ret = value;
        return 0;
}

int parse_port(const char *text, size_t n, uint16_t *ret)
{
        uint32_t value = 0;

        if (n == 0 || text[0] == '0')
                return -EINVAL;
        if (n > 5)
                return -ERANGE;
        for (size_t i = 0; i < n; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return -EINVAL;
                value = value * 10 + (uint32_t)(text[i] - '0');
        }
        if (value > UINT16_MAX)
                return -ERANGE;
        *ret = (uint16_t)value;
        return 0;
}

struct unit {
        const char *suffix;
        uint64_t factor;
};

static int parse_with_unit(const char *text, const struct unit *units, size_t units_n, uint64_t most, uint64_t *ret)
{
        uint64_t value;
        int r = take_number(&text, &value);

        if (r < 0)
                return r;
        for (size_t i = 0; i < units_n; i++) {
                if (strcmp(text, units[i].suffix) != 0)
                        continue;
                if (__builtin_mul_overflow(value, units[i].factor, &value) || value > most)
                        return -ERANGE;
                *ret = value;
                return 0;
        }
        return -EINVAL;
}

int parse_duration_ms(const char *text, uint64_t *ret_ms)
{
        static const struct unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

        return parse_with_unit(text, units, sizeof(units) / sizeof(*units), DURATION_MOST_MS, ret_ms);
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
        static const struct unit units[] = {{"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}};

        return parse_with_unit(text, units, sizeof(units) / sizeof(*units), UINT64_MAX, ret_bytes);
}

int parse_octal(const char *text, uint32_t most, uint32_t *ret)
{
        uint32_t value = 0;

        if (!*text)
                return -EINVAL;
        for (; *text; text++) {
                if (*text < '0' || *text > '7')
                        return -EINVAL;
                value = value * 8 + (uint32_t)(*text - '0');
                if (value > most)
                        return -ERANGE;
        }
        *ret = value;
        return 0;
}
