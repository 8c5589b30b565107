/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files of the process for files share. It does one thing at a time, and waits where it has to:
 *     files_main.c    its start, and what is asked of it
 *     files_sandbox.c what it gives up before
 *     files_talk.c    its conversation with the host
 *     files_place.c   from a path to a descriptor, without being led astray
 *     files_small.c   stat, list, mkdir, remove, rename
 *     files_tree.c    get and put
 *     files_watch.c   watch
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/tree/name.h"
#include "proto/wb.pb-c.h"
#include "proto/wire/frame.h"

/* ---- files_sandbox.c */

/* Leaves the process the capabilities that m needs, and the calls of which file operations are made. 0 or a negative
 * errno. */
int files_enter_sandbox(const Wb__ToAgent *m);

/* ---- files_talk.c */

struct talk {
        int fd;
        struct frame_reader reader;
        uint8_t bytes[64 * 1024];
        size_t at, n; /* of bytes: received, and not read as frames yet */
};

/* 0 or a negative errno: -EPIPE, -ECONNRESET: the host has gone away. */
int talk_send(struct talk *t, const Wb__FromAgent *m);

/* 0; -EPIPE (the host has gone away); -EBADMSG (no message of the protocol). codec_free_to_agent() frees *ret. */
int talk_receive(struct talk *t, Wb__ToAgent **ret);

int talk_send_ready(struct talk *t);
int talk_send_done(struct talk *t, uint64_t entries, uint64_t bytes, uint64_t skipped);

/* The end of a conversation that failed; what the host still sends is thrown away for a while, so that it reads this.
 */
void talk_fail(struct talk *t, const char *reason, const char *detail);

/* The same from a negative errno, about a path; answers 1, so that `return talk_fail_errno(...)` says it has been said.
 * A host that has gone away is told nothing. */
#define FILES_E_SAID 1
int talk_fail_errno(struct talk *t, int error, const char *path, size_t path_n);

/* ---- files_place.c: each 0 or a negative errno; -EINVAL for a path that is not absolute or has "..". */

/* What is there, symbolic links at the end included, with O_PATH. */
int place_open(const Wb__FilePlace *place, int *ret_fd);

/* The folder that holds it, with O_PATH, and its name in there, which is "." for the root itself. */
int place_open_parent(const Wb__FilePlace *place, int *ret_fd, char ret_name[TREE_NAME_MAX + 1]);

/* The same file again, opened in another way. */
int place_reopen(int path_fd, int flags, int *ret_fd);

/* The words of a FilePlace as the kernel wants them; parts of it, for the tests. */
#define PLACE_PATH_MAX 4096
int place_normalize(const ProtobufCBinaryData *path, char ret[PLACE_PATH_MAX]);

/* ---- what is asked: 0, FILES_E_SAID (the Error has been sent), or a negative errno (about the request's place) */

int files_stat(struct talk *t, const Wb__FileStat *m);
int files_list(struct talk *t, const Wb__FileList *m);
int files_mkdir(struct talk *t, const Wb__FileMkdir *m);
int files_remove(struct talk *t, const Wb__FileRemove *m);
int files_rename(struct talk *t, const Wb__FileRename *m);
int files_get(struct talk *t, const Wb__FileGet *m);
int files_put(struct talk *t, const Wb__FilePut *m);
int files_watch(struct talk *t, const Wb__FileWatch *m);

/* "U[:G]" of the guest; empty: root. 0; FILES_E_SAID; or a negative errno. */
int files_owner(struct talk *t, const char *owner, uid_t *ret_uid, gid_t *ret_gid);
