/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel numbers and people name. Pure. */

#include <stdint.h>

/* capabilities(7), lower case, without "cap_": its number, or -1. */
int capability_number(const char *name);

/* getrlimit(2), lower case, without "RLIMIT_": its number, or -1. */
int rlimit_number(const char *name);

/* The name of a number that rlimit_number() gave. */
const char *rlimit_name(int resource);
