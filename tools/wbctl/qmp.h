/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * QEMU's monitor protocol: a JSON object a line each way. What QEMU says is taken with care, since a guest may have got
 * the better of it: a line has a bound, and what is no object ends the conversation.
 */

#include <jansson.h>

#include "proto/base/cleanup.h"

#define QMP_LINE_MAX_BYTES 65536u

/* qmp_receive(): nothing whole has come yet. */
#define QMP_E_AGAIN 1

struct qmp;

/* fd is a stream; it becomes the conversation's also when this fails. 0 or a negative errno. */
int qmp_new(int fd, struct qmp **ret);
void qmp_free(struct qmp *q);
DEFINE_CLEANUP(struct qmp *, qmp_free);

/* Readable when qmp_receive() has something to take. */
int qmp_fd(const struct qmp *q);

/* arguments is taken; NULL: there are none. fd goes with it, unless it is negative. 0 or a negative errno. */
int qmp_send(struct qmp *q, const char *command, json_t *arguments, int fd);

/* The next object, greeting, answer or event; without waiting. 0, QMP_E_AGAIN, -EPIPE (the end), -EPROTO, -ENOMEM. */
int qmp_receive(struct qmp *q, json_t **ret);
