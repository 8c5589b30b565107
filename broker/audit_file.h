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

#include "broker/audit_record.h"

struct audit_file {
        int dir_fd;             /* locked for as long as it is open */
        int fd;                 /* -1: to be opened before the next append */
        uint64_t size_bytes;    /* up to the end of the last whole record */
        uint64_t seq;           /* of the last record, 0 before the first */
        struct audit_hash hash; /* its; zeros before the first */
        uint64_t rotate_bytes;
        uint64_t cut_bytes; /* of half a record that was found at the end when it was opened */
        bool torn;          /* bytes of a failed append may stand behind size_bytes */
};

/* Reads the last record back, to go on behind it. 0, -EBUSY, -EBADMSG, or another negative errno. On failure nothing is
 * left open. */
int audit_file_open(struct audit_file *f, const char *dir, uint64_t rotate_bytes);
void audit_file_close(struct audit_file *f);

/* Has a log open to append to: opens it again if somebody took it away. 0 or a negative errno. */
int audit_file_prepare(struct audit_file *f);

/* Is there no room for n bytes behind those it has and pending_n more? Never so for the first of a file. */
bool audit_file_is_full(const struct audit_file *f, size_t pending_n, size_t n);

/* Puts the file aside and begins another. 0 or a negative errno. */
int audit_file_rotate(struct audit_file *f);

/* Appends whole lines, of which the last has this seq and hash; all of them or none. 0 or a negative errno. */
int audit_file_append(
        struct audit_file *f, const char *lines, size_t n, uint64_t last_seq, const struct audit_hash *last_hash);

int audit_file_sync(struct audit_file *f);

/* Would an append find room? 0 or a negative errno. */
int audit_file_probe(struct audit_file *f);
