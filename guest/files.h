/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files for the host: get, put, stat, list, mkdir, remove, rename, watch, sync. Each conversation is a process of its
 * own (guest/files_main), because a file operation may take as long as a disk, or as a filesystem that a workload
 * serves, wants it to: what hangs then is that conversation alone. The agent starts it, counts it, and ends it.
 */

#include "guest/control.h"

#define FILES_ARGUMENT "--files"
#define FILES_MAX      64 /* conversations at a time */

struct files;

int files_new(struct agent *agent, struct files **ret);
void files_free(struct files *files); /* takes NULL */

/* The opening message of a conversation, which another process takes over. */
void files_open(struct files *files, struct control *c, const Wb__ToAgent *m);

/* Ends all of them, within half a second. What they had not finished is gone. */
void files_stop(struct files *files);

/* What the process is: descriptor 3 is the conversation, 4 a pipe with its opening frame. Its exit status. */
int files_main(void);
