/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The other end of proto/tree/reader: makes files of a stream of entries and data that an enemy may have written, in a
 * folder where another enemy may be at work. Names are checked (proto/tree/name.h); every folder on the way is opened
 * without following symbolic links and held while it is written in, so that nothing is ever written outside. A regular
 * file has no name until it is whole; then it is put into its place, over what is there, but never over a folder.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/wb.pb-c.h"

struct tree_writer;

struct tree_writer_options {
        bool keep_owner; /* the entries' uid and gid */
        uid_t uid;       /* else these; (uid_t)-1: left alone */
        gid_t gid;
        bool special;     /* devices, FIFOs, set-user-ID and set-group-ID bits; else they are skipped, and taken off */
        mode_t mask;      /* taken off the mode of all else */
        bool synchronize; /* on disk when tree_writer_end() answers */
};

struct tree_writer_report {
        uint64_t entries, bytes, skipped;
};

/* The stream breaks a rule: a name that leads out, data that nobody asked for. */
#define TREE_E_REFUSED 1

/*
 * What comes is put into the folder dir_fd: as name and below it, or, where name is NULL, by the stream's own paths.
 * dir_fd and name are the caller's and live until tree_writer_free(). 0 or -ENOMEM.
 */
int tree_writer_new(int dir_fd, const char *name, const struct tree_writer_options *options, struct tree_writer **ret);

/* Takes NULL. What is not whole is gone. */
void tree_writer_free(struct tree_writer *w);

/* Each: 0, TREE_E_REFUSED, or a negative errno; after a failure nothing but tree_writer_fault() and _free(). */
int tree_writer_entry(struct tree_writer *w, const Wb__FileEntry *e);
int tree_writer_data(struct tree_writer *w, uint64_t offset, const uint8_t *data, size_t n);

/* The stream has ended in order: what is open is put into its place. -ENODATA: there was no entry. */
int tree_writer_end(struct tree_writer *w, struct tree_writer_report *ret);

/* The path, in the stream's terms, that the last failure was about, or what was wrong with it. */
const char *tree_writer_fault(const struct tree_writer *w);
