/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The forwarder: a process of its own through which workloads reach the host. It carries the connections to the proxy
 * port, looking at none of their bytes; answers DNS questions (guest/dns_stub); and turns connections to the addresses
 * that it gave for names into such of the proxy (guest/transparent). Workloads reach it, so it holds nothing worth
 * having: no privileges, no secrets, a seccomp filter, bounded memory.
 */

/* wbagent --forwarder (DIR | vsock) ROLES, with the sockets at 3 and up. */
#define FORWARDER_ARGUMENT "--forwarder"
#define FORWARDER_VSOCK    "vsock"

/* One letter of ROLES for each socket. */
enum forwarder_role {
        FORWARDER_PROXY = 'p',       /* a listener */
        FORWARDER_TRANSPARENT = 't', /* a listener that gets connections to the pool's addresses */
        FORWARDER_DNS_TCP = 's',     /* a listener */
        FORWARDER_DNS_UDP = 'd',
};
#define FORWARDER_SOCKETS_MAX 24u

/* The process: answers its exit status. where is a directory of unix sockets, or FORWARDER_VSOCK. */
int forwarder_main(const char *where, const char *roles);
