/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pseudoterminals from the guest's own devpts, without libutil. */

#include <stdbool.h>
#include <sys/types.h>

#define PTY_ROWS    24 /* where the request says 0 */
#define PTY_COLUMNS 80

/*
 * The master comes non-blocking; both close-on-exec. The slave belongs to uid, group tty (5), mode 0620, as login(1)
 * leaves it. 0 or a negative errno
 * (-ENOENT, -ENODEV: no devpts).
 */
int pty_open(unsigned rows, unsigned columns, uid_t uid, int *ret_master, int *ret_slave);

/* SIGWINCH goes to the foreground group if the size changed. 0 or a negative errno. */
int pty_resize(int master, unsigned rows, unsigned columns);

/* The byte that means end of file at a line's start; -1 where the terminal is in raw mode and no byte does. */
int pty_eof_byte(int master);
