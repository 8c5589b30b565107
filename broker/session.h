/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection of a guest, from its first byte to its end (the story is told in session.c). */

#include "broker/reason.h"

struct session;
struct vm;

/* Takes fd, a connected non-blocking socket, also where it fails. The session is in vm's list until it ends by itself.
 * 0, -ENOMEM, -ENOBUFS. */
int session_new(struct vm *vm, int fd);

struct session *session_next(struct session *s);

/*
 * Ends it now. reason is recorded as a denial if anything was open; REASON_ALLOWED: the end is nobody's denial (the VM
 * is removed, the broker stops). s is gone.
 */
void session_cut(struct session *s, enum reason reason);

/*
 * Around a change of the policy or the floor: all sessions give up their places in the limits, then each is judged by
 * what now holds and takes a place again, or is cut. The second may free s.
 */
void session_leave_limits(struct session *s);
void session_judge_again(struct session *s);

/* Ends it if nothing is going on, else after what is going on. May free s. */
void session_drain(struct session *s);
