/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/printable.h"

/* C0, DEL, and C1 as UTF-8 has them (0xc2 0x80 to 0xc2 0x9f). A NUL stands behind p at the latest. */
static bool steers(const unsigned char *p)
{
        return *p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0);
}

void printable(const char *text, char *ret_text, size_t room)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t n = 0;

        for (; *p && n + 1 < room; p++) {
                bool bad = steers(p);

                p += bad && *p == 0xc2;
                ret_text[n++] = bad ? '?' : (char)*p;
        }
        ret_text[n] = '\0';
}

bool printable_is(const char *text, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (steers((const unsigned char *)text + i))
                        return false;
        return true;
}
