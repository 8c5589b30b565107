/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who signs the audit log's checkpoints: the monitor, which has the key and never sees a guest's byte, asked by the
 * broker's audit thread over a socketpair of their own.
 *
 * The notary signs whatever hash it is told, and with it what it signed before, which it keeps in STATE_DIR/audit.head
 * (one line, `SEQ HASH`: the last record that is vouched for). So a broker that a guest took over can have lies signed
 * from then on, but cannot replace what was signed before: every later signature names it.
 */

#include <stdbool.h>
#include <stdint.h>

#include "broker/audit_checkpoint.h"

/* The whole conversation: one question, one answer, each one message of this size. */
struct audit_question {
        uint64_t seq; /* of the checkpoint's own record; not 0 */
        struct audit_hash previous;
};

struct audit_answer {
        int32_t result; /* 0 or a negative errno */
        struct audit_checkpoint checkpoint;
};

/* Both ends in order: [0] the notary's, [1] the audit thread's. */
int audit_notary_pair(int ret_fds[2]);

struct audit_notary;

/* sock is the notary's. A state_dir has one notary at a time. 0, or a negative errno that has been logged (then it is
 * closed as well), -EBUSY for a second one. */
int audit_notary_new(const char *state_dir, int sock, struct audit_notary **ret);
void audit_notary_free(struct audit_notary *notary); /* takes NULL */

/* To wait for questions; -1 when the other end is gone. */
int audit_notary_fd(const struct audit_notary *notary);

/* Answers one question; nothing that is asked can make it fail. */
void audit_notary_serve(struct audit_notary *notary);

/* The other end. It has one question open at a time. */
struct audit_asker {
        int sock;
        bool is_waiting; /* for an answer that did not come in time */
};

/*
 * Asks, and waits for the answer, together with the one that an earlier question still waits for at most timeout_ns. 0;
 * AUDIT_NOTARY_E_NOT_ASKED (the earlier one is not answered yet, or nobody takes questions any more); or a negative
 * errno: no answer, or no signature, and then nobody knows whether there is one. An answer that comes too late for its
 * question is taken for no other.
 */
#define AUDIT_NOTARY_E_NOT_ASKED 1
int audit_notary_ask(struct audit_asker *asker, const struct audit_question *question, uint64_t timeout_ns,
        struct audit_checkpoint *ret);
