/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `wbctl file` shows. Names are the guest's bytes: what is not printable is escaped on the way to a person. */

#include <stdbool.h>

#include "proto/wb.pb-c.h"

struct file_printer {
        bool json;
        bool is_list; /* entries have names of their own */
        bool begun;
};

/* path is what was asked for. */
void file_print_entry(struct file_printer *p, const char *path, const Wb__FileEntry *e);

/* After the last entry; whole: nothing is missing. */
void file_print_end(struct file_printer *p, bool whole);

void file_print_event(bool json, const Wb__FileEvent *e);
