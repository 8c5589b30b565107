/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/strict_text.h"

#include <string.h>

#define DIGEST_CHARS (SHA256_TEXT_BYTES - 1)

size_t strict_text_left(const struct strict_text *t)
{
        return (size_t)(t->end - t->at);
}

bool strict_text_take(struct strict_text *t, const char *text)
{
        size_t n = strlen(text);

        if (strict_text_left(t) < n || memcmp(t->at, text, n) != 0)
                return false;
        t->at += n;
        return true;
}

bool strict_text_take_chars(struct strict_text *t, bool (*is_char)(char), char *ret, size_t room)
{
        size_t n = 0;

        while (n < strict_text_left(t) && is_char(t->at[n]))
                n++;
        if (n == 0 || n >= room)
                return false;
        memcpy(ret, t->at, n);
        ret[n] = '\0';
        t->at += n;
        return true;
}

bool strict_text_take_number(struct strict_text *t, uint64_t least, uint64_t most, uint64_t *ret)
{
        uint64_t value = 0;
        size_t n = 0;

        for (; n < strict_text_left(t) && t->at[n] >= '0' && t->at[n] <= '9'; n++) {
                unsigned digit = (unsigned)(t->at[n] - '0');

                if ((n > 0 && value == 0) || value > (most - digit) / 10)
                        return false;
                value = value * 10 + digit;
        }
        if (n == 0 || value < least)
                return false;
        t->at += n;
        *ret = value;
        return true;
}

bool strict_text_take_digest(struct strict_text *t, uint8_t ret[SHA256_BYTES])
{
        if (strict_text_left(t) < DIGEST_CHARS || sha256_parse(t->at, ret) < 0)
                return false;
        t->at += DIGEST_CHARS;
        return true;
}
