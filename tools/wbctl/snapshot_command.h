/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of `wbctl snapshot`, one file each: argv[0] is "create" and so on; they answer the exit status. */

int snapshot_create_command(int argc, char **argv);
int snapshot_restore_command(int argc, char **argv);
