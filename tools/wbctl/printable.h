/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text that came from a guest, for a terminal: what could steer the terminal becomes `?`. Pure. */

#include <stdbool.h>
#include <stddef.h>

/* Cuts at room. text is UTF-8 or anything. */
void printable(const char *text, char *ret_text, size_t room);

/* Is there nothing in n bytes of text that would become `?`? */
bool printable_is(const char *text, size_t n);
