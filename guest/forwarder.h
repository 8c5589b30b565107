/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The forwarder: a process of its own that carries bytes between loopback connections of workloads and the host's
 * egress port. It looks at none of them. Workloads reach it, so it holds nothing worth having: no privileges, no
 * secrets, a seccomp filter, bounded memory.
 */

#define FORWARDER_ARGUMENT                                                                                             \
        "--forwarder" /* wbagent --forwarder (DIR | vsock), with the listening sockets at 3 and up                     \
                       */
#define FORWARDER_VSOCK "vsock"

/* The process: answers its exit status. where is a directory of unix sockets, or FORWARDER_VSOCK. */
int forwarder_main(const char *where);
