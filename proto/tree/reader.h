/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A tree of files as a stream of entries and data (wb.proto, FileEntry), in constant memory. The tree may change
 * meanwhile, and whoever changes it may mean harm: below the descriptor that it is given the reader follows no symbolic
 * link, opens nothing but regular files and folders, and takes what has vanished as not there.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "proto/tree/name.h"
#include "proto/wb.pb-c.h"

struct tree_reader_handler {
        /* Each answers 0, or what ends the reading and becomes its answer. What they are given lives for the call. */
        int (*entry)(void *userdata, const Wb__FileEntry *e);
        int (*data)(void *userdata, uint64_t offset, const uint8_t *data, size_t n);
};

struct tree_reader_options {
        bool recursive;
        bool special; /* devices and FIFOs as well */
        bool one_filesystem;
};

struct tree_reader_report {
        uint64_t entries, bytes, skipped;
        char fault[TREE_PATH_MAX + 1]; /* where it failed; empty: at the root */
};

/*
 * fd is what is read: a regular file or a folder, opened for reading, or anything with O_PATH, of which only the entry
 * is told. It stays the caller's. 0; -EISDIR (a folder, and not recursive); -EOPNOTSUPP (a device or the like, which
 * was not asked for); -ENAMETOOLONG (deeper than a stream's names may be); another negative errno; or the handler's
 * answer. *report counts from the beginning, also on failure.
 */
int tree_read(int fd, const struct tree_reader_options *options, const struct tree_reader_handler *handler,
        void *userdata, struct tree_reader_report *report);

/* What a file is, without a path. entry's link stays empty. */
void tree_entry_fill(Wb__FileEntry *entry, const struct stat *st);
