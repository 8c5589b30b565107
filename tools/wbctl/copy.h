/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What `wbctl cp` is made of:
 *     cp.c             the command line: which side is the guest's, and what is meant
 *     copy_put.c       from here to the guest
 *     copy_get.c       from the guest, who may be an enemy, to here
 *     copy_tar.c       tar on our side, by libarchive
 *     copy_progress.c  how far it is, on a terminal
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/client/client.h"
#include "proto/tree/name.h"
#include "tools/wbctl/target.h"

/* ---- copy_progress.c */

struct copy_progress {
        bool shown; /* stderr is a terminal */
        bool line;  /* there is something to wipe */
        uint64_t started_ns, next_ns;
        uint64_t done_bytes; /* of data */
        uint64_t entries;
        uint64_t file_bytes; /* of the file that is being copied; 0: not known */
        uint64_t file_at;
};

void copy_progress_begin(struct copy_progress *p);
void copy_progress_file(struct copy_progress *p, uint64_t bytes);
void copy_progress_move(struct copy_progress *p, uint64_t offset, uint64_t n);
void copy_progress_end(struct copy_progress *p);

/* ---- what is copied */

struct copy_options {
        bool recursive;
        bool preserve; /* owners */
        bool special;
        bool one_filesystem;
        const char *owner; /* of the guest; may be NULL */
        const char *root;  /* of the guest; may be NULL */
};

struct copy {
        const struct copy_options *options;
        const char *guest; /* the path over there */
        const char *local; /* "-": stdin or stdout */
        struct client_call call;
        uint64_t answer_ms; /* for the first answer */
        struct copy_progress progress;
};

/* Each: 0, or EXIT_FAILED, said. */
int copy_put(struct copy *c);
int copy_get(struct copy *c);

/* The last component of a path, without slashes at its end. False for "", "/", "." and "..", also behind a slash: there
 * only what is in it has names. */
bool copy_base_name(const char *path, char ret[TREE_NAME_MAX + 1]);

/* Prints what a guest or a file is called without its control bytes. */
void copy_say(const char *path, const char *text);

/* "PATH: what errno says"; answers EXIT_FAILED. */
int copy_say_errno(const char *path, int error);

/* ---- copy_put.c, for copy_tar.c: one message of the stream. 0 or a negative errno; -ECANCELED: the guest has said
 * something, which is the end. */
int copy_send_entry(struct copy *c, const Wb__FileEntry *e);
int copy_send_data(struct copy *c, uint64_t offset, const uint8_t *data, size_t n);

/* ---- copy_tar.c */

/* stdin, a tar, to the guest. 0, -ECANCELED, or a negative errno; -EBADMSG: no tar, or one that names what is outside
 * of it; said. */
int copy_tar_send(struct copy *c);

/* A tar to stdout. prefix is put before all names; may be empty. */
struct copy_tar;
int copy_tar_new(const char *prefix, struct copy_tar **ret);
int copy_tar_entry(struct copy_tar *t, const Wb__FileEntry *e); /* 0 or a negative errno, said */
int copy_tar_data(struct copy_tar *t, uint64_t offset, const uint8_t *data, size_t n);
int copy_tar_end(struct copy_tar *t);
void copy_tar_free(struct copy_tar *t); /* takes NULL */
