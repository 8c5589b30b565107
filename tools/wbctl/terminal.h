/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The local terminal while a command has one on the other side. */

#include <stdbool.h>
#include <termios.h>

struct terminal {
        int fd; /* -1: none of the three is a terminal */
        bool is_raw;
        struct termios before;
};

/* Finds it among descriptors 0, 1, 2. */
void terminal_find(struct terminal *t);

/* Raw mode: every byte is the command's, Ctrl-C too. 0 or a negative errno. terminal_restore() any number of times. */
int terminal_make_raw(struct terminal *t);
void terminal_restore(struct terminal *t);

/* False where there is none; the sizes are 0 then. */
bool terminal_size(const struct terminal *t, unsigned *ret_rows, unsigned *ret_columns);
