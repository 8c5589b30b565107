/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A checkpoint: the record of event `checkpoint`, by which the broker's key vouches for all that stands before it.
 * Pure.
 *
 * Its members, beside those of every record, are
 *     previous    the hash of the record before it, 64 digits
 *     after       the seq of the record that the signature before this one vouched for, 0 for a key's first
 *     after_hash  that record's hash, 64 digits; 64 zeros for a key's first
 *     key         the public key, base64 of its DER (SubjectPublicKeyInfo): the text between the lines of a PEM file
 *     sig         the signature, base64 of its DER: ECDSA on P-256 with SHA-256 over exactly these lines, the last
 *                 one's newline included, with this record's own members in place of the capitals
 *
 *     wbbroker audit checkpoint
 *     seq SEQ
 *     ts TS
 *     previous PREVIOUS
 *     after AFTER AFTER_HASH
 *
 * Through `previous` it covers every record up to SEQ - 1. `after` ties each signature to the one before it, which the
 * signer itself remembers (broker/audit_notary.h): whoever can ask for signatures still cannot replace what was
 * signed once, because the next signature names it.
 *
 * A checkpoint with `previous` alone is a question to which no answer came in time: the signature may have been made
 * all the same, and then the next one names that record.
 */

#include <stddef.h>
#include <stdint.h>

#include "broker/audit_record.h"
#include "proto/base/clock.h"
#include "proto/base/p256.h"

#define AUDIT_KEY_TEXT_BYTES 125u /* the 91 bytes of such a DER, and a NUL */

struct audit_checkpoint {
        uint64_t seq;
        char ts[CLOCK_TEXT_BYTES];
        struct audit_hash previous;
        uint64_t after;
        struct audit_hash after_hash;
        char key[AUDIT_KEY_TEXT_BYTES];
        uint8_t signature[P256_SIGNATURE_MAX_BYTES];
        size_t signature_n;
};

/* The lines that are signed. */
#define AUDIT_STATEMENT_MAX_BYTES 320u
size_t audit_checkpoint_statement(const struct audit_checkpoint *c, char ret_text[AUDIT_STATEMENT_MAX_BYTES]);

/* Sets key and signature. 0 or a negative errno. */
int audit_checkpoint_sign(struct audit_checkpoint *c, const struct p256_key *key);

/*
 * Is it signed by the key that it names? 0 with the key's fingerprint (p256_fingerprint()); -EKEYREJECTED (it is not,
 * or that is no key on P-256); another negative errno.
 */
int audit_checkpoint_check(const struct audit_checkpoint *c, uint8_t ret_fingerprint[SHA256_BYTES]);

/* Its line up to the tail; without a signature (signature_n 0) that of a question without an answer. */
#define AUDIT_CHECKPOINT_MAX_BYTES 1024u
size_t audit_checkpoint_line(const struct audit_checkpoint *c, char to[AUDIT_CHECKPOINT_MAX_BYTES]);

/* `sig` as it stands there: strict base64. 0 or -EBADMSG. */
int audit_checkpoint_parse_signature(const char *text, struct audit_checkpoint *c);
