/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the files of an audit log (broker/audit_file.h says which) while a broker may be writing them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far reading has come: bytes of the file of that inode. Zeroed: nothing was read. */
struct audit_log_place {
        uint64_t inode;
        uint64_t offset;
};

/* One whole line with a NUL in place of its end; it lives for the call. */
typedef void (*audit_log_handler)(void *userdata, char *line);

/* Does the line count? */
typedef bool (*audit_log_filter)(void *userdata, const char *line);

/* Hands the last `wanted` lines that count, oldest first. 0 or a negative errno; -ENOENT where there is no log. */
int audit_log_last(const char *dir, size_t wanted, audit_log_filter filter, audit_log_handler handler, void *userdata,
        struct audit_log_place *ret_place);

/* Hands the lines that were written since (all, if place is zeroed), counting or not, also over rotations, and moves
 * place. 0 or a negative errno. */
int audit_log_more(const char *dir, struct audit_log_place *place, audit_log_handler handler, void *userdata);

/* Hands all whole lines of one file, a regular one. 0 or a negative errno. */
int audit_log_file(const char *path, audit_log_handler handler, void *userdata);
