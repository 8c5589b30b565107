/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes a VM's connections as fast as they come, since a full backlog stalls a VMM, but a bounded number in one turn of
 * the loop, so that the other VMs have theirs. Without descriptors left a spare one is given up to answer with a close,
 * and accepting pauses for a moment.
 */

struct vm;
struct listener;

/* Owns fd, a listening non-blocking socket, when it answers 0. accept takes each connection. */
int listener_new(struct vm *vm, int fd, void (*accept)(struct vm *vm, int fd), struct listener **ret);
void listener_free(struct listener *l); /* takes NULL */
