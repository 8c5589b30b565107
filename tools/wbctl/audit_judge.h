/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A whole log put to audit_check.h: what `verify` prints and `report` shows. */

#include "proto/base/options.h"
#include "tools/wbctl/audit_check.h"
#include "tools/wbctl/audit_reader.h"

#define AUDIT_STATE_DIR "/var/lib/wbbroker"

/* As on the command line; texts are borrowed. */
struct audit_trust_options {
        struct option_strings keys; /* public keys' files */
        const char *head;           /* the broker's audit.head */
        bool partial;
};

/* What to check by; zeroed: the chain alone. */
struct audit_trust {
        struct audit_hash *keys; /* fingerprints; freed by audit_trust_done() */
        size_t keys_n;
        bool has_head;
        uint64_t head_seq;
        struct audit_hash head_hash;
        bool partial;
};

/*
 * Reads the files that are named, or, where is_default (the broker's own log was not asked for by any name) and none
 * is, those of AUDIT_STATE_DIR that can be read. To be called before the log is opened: what the broker signed by then
 * is in the log that is read after it. 0, or a negative errno that was said; then too *ret is to be done.
 */
int audit_trust_take(const struct audit_trust_options *options, bool is_default, struct audit_trust *ret);
void audit_trust_done(struct audit_trust *trust);

/*
 * 0 with the summary in *ret, or a negative errno that was said. The reader is read to its end. on_text may be NULL;
 * else it has each line behind the check.
 */
typedef void (*audit_text_handler)(void *userdata, const struct audit_text *text);
int audit_judge(const struct audit_trust *trust, struct audit_reader *reader, finding_handler on_finding,
        audit_text_handler on_text, void *userdata, struct audit_summary *ret);

/* One line for a person: whole or not, how many records, up to where signed. */
#define AUDIT_VERDICT_BYTES 512
void audit_verdict(const struct audit_summary *summary, size_t files_n, char ret_text[AUDIT_VERDICT_BYTES]);

/* What else has to be known to trust the verdict, a sentence each; false: there is no such. i counts from 0. */
bool audit_note(const struct audit_summary *summary, const struct audit_trust *trust, size_t i,
        char ret_text[AUDIT_VERDICT_BYTES]);
