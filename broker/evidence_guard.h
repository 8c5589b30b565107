/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Gathers evidence in a child process with a deadline. What a process maps or runs can lie on a file system that the
 * process serves itself, and then /proc answers when it pleases: the monitor must not wait for that.
 */

#include "broker/evidence_gather.h"

typedef int evidence_gather_fn(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd);

/* As gather, which is evidence_gather() but in tests; -ETIMEDOUT, or -EIO where the child ended without an answer. */
int evidence_guard(evidence_gather_fn *gather, uint64_t limit_ns, struct evidence_digests *digests, int pid,
        struct evidence *ret, int *ret_pidfd);
