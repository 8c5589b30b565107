/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TARGET of wbctl's commands: --vm NAME | --uds PATH | --cid N | --unix DIR. A command embeds struct target_options in
 * its options and puts TARGET_SPECS into its table:
 *
 *     static const struct option_spec specs[] = {TARGET_SPECS(struct info_options, target), ...};
 */

#include <stddef.h>
#include <stdint.h>

#include "proto/base/options.h"
#include "proto/wire/transport.h"

struct target_options {
        const char *vm;
        const char *uds;
        const char *unix_dir;
        const char *socket; /* the broker's control socket, for vm */
        uint64_t cid;       /* 0: not given */
};

#define TARGET_SPECS(type, member)                                                                                     \
        {"vm", 0, OPTION_STRING, offsetof(type, member.vm), "NAME", "a VM that the broker knows"},                     \
                {"uds", 0, OPTION_STRING, offsetof(type, member.uds), "PATH",                                          \
                        "the VMM's vsock socket (Firecracker, Cloud Hypervisor, wbvsock)"},                            \
                {"cid", 0, OPTION_U64, offsetof(type, member.cid), "N", "a guest's CID on this host's kernel vsock"},  \
                {"unix", 0, OPTION_STRING, offsetof(type, member.unix_dir), "DIR",                                     \
                        "a directory of unix sockets, one per port"},                                                  \
        {                                                                                                              \
                "socket", 0, OPTION_STRING, offsetof(type, member.socket), "PATH",                                     \
                        "the broker's control socket, for --vm (WB_SOCKET)"                                            \
        }

#define TARGET_USAGE "(--vm NAME | --uds PATH | --cid N | --unix DIR)"

/*
 * What was named, as a transport to dial. Exactly one must have been given. 0; or EXIT_USAGE or EXIT_FAILED with the
 * reason on stderr. ret->path points into argv, or into memory that target_done() frees.
 */
struct target {
        struct transport transport;
        char *owned_path;
};

int target_resolve(const struct option_table *table, const struct target_options *options, struct target *ret);
void target_done(struct target *target);
