/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Brings TCP connections to any port of the pool's addresses to one listener, by a program that the kernel asks which
 * socket a connection is for (BPF_PROG_TYPE_SK_LOOKUP, kernel 5.9). Other than a redirection by nftables it needs no
 * module, keeps no state for each connection and leaves the address that was meant on the socket; and other than
 * listeners on the wanted ports it takes no port from the workloads, whose own servers may have any of them (with
 * SO_REUSEADDR, as servers have: the connections to a port of the pool have that port on our side).
 */

/*
 * listener is a TCP socket of AF_INET that listens. 0 and *ret_fd, a descriptor that keeps it in force for the network
 * namespace of the caller; or a negative errno: -ENOSYS, -EPERM, -EINVAL on kernels that have it not or do not let us.
 */
int steer_start(int listener, int *ret_fd);
