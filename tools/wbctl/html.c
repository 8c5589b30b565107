/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/html.h"

#include <string.h>

void html_text(FILE *to, const char *text)
{
        for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
                if (*p < 0x20 || *p >= 0x7f)
                        fprintf(to, "\\x%02x", *p);
                else if (strchr("&<>\"'`", *p))
                        fprintf(to, "&#%u;", *p);
                else
                        (void)putc(*p, to);
        }
}
