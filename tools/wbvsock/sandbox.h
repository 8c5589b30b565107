/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is given up before the guest's first byte is read: new privileges, being traced or dumped (the guest's memory is
 * mapped here), and every system call that the loop does not need. There is no way back.
 */

/* 0 or a negative errno. */
int sandbox_enter(void);

/* SIGTERM when the parent dies; -ESRCH if it is dead already. parent: getppid() as early as possible. */
int sandbox_die_with_parent(int parent);
