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
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/audit_record.h"
#include "proto/base/clock.h"

#define AUDIT_KEY_MAX_BYTES       96u /* the SubjectPublicKeyInfo of a P-256 key has 91 */
#define AUDIT_SIGNATURE_MAX_BYTES 80u /* an ECDSA signature of P-256 has at most 72 */

struct audit_checkpoint {
        uint64_t seq;
        char ts[CLOCK_TEXT_BYTES];
        struct audit_hash previous;
        uint64_t after;
        struct audit_hash after_hash;
        uint8_t key[AUDIT_KEY_MAX_BYTES];
        uint8_t signature[AUDIT_SIGNATURE_MAX_BYTES];
        uint32_t key_n;
        uint32_t signature_n;
};

/* The lines that are signed, and their SHA-256. */
#define AUDIT_STATEMENT_MAX_BYTES 320u
size_t audit_checkpoint_statement(const struct audit_checkpoint *c, char ret_text[AUDIT_STATEMENT_MAX_BYTES]);
int audit_checkpoint_digest(const struct audit_checkpoint *c, uint8_t ret_sha256[32]); /* 0 or -ENOTSUP */

/* The DER of a public key on P-256, the point uncompressed: the one form that the broker writes. */
bool audit_key_is_p256(const uint8_t *der, size_t n);

/* Is it signed by the key that it names? 0; -EKEYREJECTED (it is not, or that is no P-256 key); -ENOTSUP. */
int audit_checkpoint_check(const struct audit_checkpoint *c);

/* Its line up to the tail. */
#define AUDIT_CHECKPOINT_MAX_BYTES 1024u
size_t audit_checkpoint_line(const struct audit_checkpoint *c, char to[AUDIT_CHECKPOINT_MAX_BYTES]);

/* Base64 as it stands in `key` and `sig`: strict, no spaces. 0 or -EBADMSG. */
int audit_base64_parse(const char *text, uint8_t *ret_bytes, size_t room, uint32_t *ret_n);
