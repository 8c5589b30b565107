/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of the audit log: DIR/audit.log, and beside it DIR/audit.log.SEQ for each that was put aside, SEQ (20
 * digits) being its last record's: the names sort as the records do. Nothing is ever deleted here. No thread of its
 * own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct audit_file {
        int dir_fd;          /* locked for as long as it is open */
        int fd;              /* -1: to be opened before the next append */
        uint64_t size_bytes; /* up to the end of the last whole record */
        uint64_t seq;        /* of the last record, 0 before the first */
        uint64_t rotate_bytes;
        bool torn; /* bytes of a failed append may stand behind size_bytes */
};

/* 0, -EBUSY, -EBADMSG, or another negative errno. On failure nothing is left open. */
int audit_file_open(struct audit_file *f, const char *dir, uint64_t rotate_bytes);
void audit_file_close(struct audit_file *f);

/*
 * Appends whole lines, of which the last has this seq; all of them or none. Puts the file aside first if it would grow
 * too large, opens it again if somebody took it away. 0 or a negative errno.
 */
int audit_file_append(struct audit_file *f, const char *lines, size_t n, uint64_t last_seq);

int audit_file_sync(struct audit_file *f);

/* Would an append find room? 0 or a negative errno. */
int audit_file_probe(struct audit_file *f);
