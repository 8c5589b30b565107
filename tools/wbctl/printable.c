/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/printable.h"

/*
 * The bytes at p that steer a terminal, or 0: C0, DEL, C1 as UTF-8 has them, and what turns the direction of writing or
 * ends a line (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069). A NUL stands behind p at the latest.
 */
static size_t steering(const unsigned char *p)
{
        if (*p < 0x20 || *p == 0x7f)
                return 1;
        if ((*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) || (*p == 0xd8 && p[1] == 0x9c))
                return 2;
        if (*p == 0xe2 && p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae)))
                return 3;
        return *p == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9 ? 3 : 0;
}

void printable(const char *text, char *ret_text, size_t room)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t n = 0;

        while (*p && n + 1 < room) {
                size_t bad = steering(p);

                ret_text[n++] = bad ? '?' : (char)*p;
                p += bad ? bad : 1;
        }
        ret_text[n] = '\0';
}

bool printable_is(const char *text, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (steering((const unsigned char *)text + i))
                        return false;
        return true;
}
