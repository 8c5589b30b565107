/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sockets in the file system where a VMM and the broker meet, as the monitor makes and opens them. A listener
 * belongs to the owner and the group of the directory that it stands in, mode 0660; where the VMM's uid is known and
 * another, it belongs to that one. The monitor acts with the file-system identity of the directory's owner, so that the
 * kernel judges whether that one may do this there.
 */

#include <stdint.h>
#include <sys/types.h>

#include "proto/wire/transport.h"

/* PATH_PORT or DIR/PORT. vmm_uid: (uid_t)-1 if not known. 0 or a negative errno. */
int vm_socket_listen(const struct transport *t, uint32_t port, uid_t vmm_uid, int *ret_fd);

/* Removes the socket file. Missing is well. */
void vm_socket_unlink(const struct transport *t, uint32_t port);

/*
 * Connects to the guest's side: PATH or DIR/1024, with the identity of the socket's owner. If that is root, only
 * DIR/1024 of the unix transport, in a directory that only root writes to: there it is an agent, and the broker reaches
 * nothing else of root's through the monitor. Otherwise -EACCES: whoever runs a VMM as root gives the broker's user
 * access instead.
 */
int vm_socket_dial(const struct transport *t, int *ret_fd);
