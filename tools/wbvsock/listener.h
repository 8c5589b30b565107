/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A unix socket by its path. */

#include <stdint.h>
#include <sys/un.h>

/* What a port adds to the path of the hybrid interface: "_4294967295". */
#define LISTENER_SUFFIX_MAX 11u

/* 0 or -ENAMETOOLONG: PATH does not fit into a socket's address with that many bytes behind it. */
int listener_check_path(const char *path, unsigned suffix_bytes);

/*
 * Listens at path with these permissions. The name appears when it can be connected to, not before; a socket that
 * nobody listens on any more is replaced. *ret_fd is non-blocking and close-on-exec. 0, -EADDRINUSE (a living one, or
 * something that is no socket), or another negative errno.
 */
int listener_open(const char *path, uint32_t mode, int backlog, int *ret_fd);
