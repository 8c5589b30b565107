/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The key that signs checkpoints: ECDSA on P-256, in STATE_DIR/audit.key (PEM, 0600), its public part in
 * STATE_DIR/audit.pub (PEM, 0644). Only the monitor has it.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct audit_key;

/*
 * Loads the key, or makes it if there is none, and writes the public part where it is not there or another. 0, or a
 * negative errno that has been logged.
 */
int audit_key_open(int state_dir_fd, struct audit_key **ret);
void audit_key_free(struct audit_key *key); /* takes NULL */

/* The public part, DER: borrowed, as long as the key lives. */
const uint8_t *audit_key_public(const struct audit_key *key, size_t *ret_n);

/* 0 with *ret_n bytes of DER, at most AUDIT_SIGNATURE_MAX_BYTES; -EIO. */
int audit_key_sign(struct audit_key *key, const uint8_t sha256[32], uint8_t *ret_signature, uint32_t *ret_n);

/*
 * Puts text in the place of the file, whole or not at all, and on disk: under another name first. 0 or a negative
 * errno.
 */
int audit_state_write(int dir_fd, const char *name, mode_t mode, const char *text);
