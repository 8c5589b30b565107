/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/json_escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the well-formed character at p (Unicode 15, table 3-7), 0 if there is none; *ret its code point. */
static size_t take_character(const uint8_t *p, size_t n, uint32_t *ret)
{
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        size_t length = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
        uint32_t code;

        if (length == 0 || length > n || p[0] > 0xf4)
                return 0;
        code = length == 1 ? p[0] : p[0] & (0x7fu >> length);
        for (size_t i = 1; i < length; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                code = code << 6 | (p[i] & 0x3fu);
        }
        if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
                return 0;
        *ret = code;
        return length;
}

static size_t put_unicode(char *to, uint32_t code)
{
        static const char digits[] = "0123456789abcdef";

        to[0] = '\\';
        to[1] = 'u';
        for (int i = 0; i < 4; i++)
                to[2 + i] = digits[code >> (12 - 4 * i) & 15];
        return 6;
}

static bool is_plain(uint32_t code)
{
        return code >= 0x20 && !(code >= 0x7f && code < 0xa0) && code != 0x2028 && code != 0x2029;
}

size_t json_escape(char *to, const char *text, size_t n)
{
        const uint8_t *p = (const uint8_t *)text;
        size_t put = 0;

        while (n) {
                uint32_t code;
                size_t length = take_character(p, n, &code);

                if (length == 0) {
                        put += put_unicode(to + put, 0xfffd);
                        length = 1;
                } else if (code == '"' || code == '\\') {
                        to[put++] = '\\';
                        to[put++] = (char)code;
                } else if (is_plain(code)) {
                        memcpy(to + put, p, length);
                        put += length;
                } else {
                        put += put_unicode(to + put, code);
                }
                p += length;
                n -= length;
        }
        return put;
}
