/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Any text as the inside of an HTML element or of a quoted attribute. */

#include <stdio.h>

/* Printable ASCII stays, but for what HTML gives a meaning; everything else is shown by its number: no markup, and no
 * character that hides or turns its neighbours. text is UTF-8 or anything. */
void html_text(FILE *to, const char *text);
