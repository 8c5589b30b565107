/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The same as guest/steer by nftables, over netlink: for where its program may not be loaded but a network namespace of
 * one's own may be filtered, as in a container in a user namespace. What was meant is then asked for with
 * SO_ORIGINAL_DST.
 */

#include <stdint.h>

/*
 * TCP to all ports of the pool's addresses goes to 127.0.0.1:port. 0 and *ret_fd, with which it ends; or a negative
 * errno: -EPROTONOSUPPORT, -ENOENT, -EOPNOTSUPP on kernels that have it not (nf_tables of 5.12, nat, redir), -EPERM.
 */
int redirect_start(uint16_t port, int *ret_fd);

/* Where an accepted connection that was redirected was meant to go. 0 or a negative errno. */
struct sockaddr_in;
int redirect_find_target(int fd, struct sockaddr_in *ret);
