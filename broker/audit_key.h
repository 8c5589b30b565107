/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The key that signs checkpoints: ECDSA on P-256, in STATE_DIR/audit.key (PEM, 0600), its public part in
 * STATE_DIR/audit.pub (PEM, 0644). Only the monitor has it.
 */

#include <sys/types.h>

#include "proto/base/p256.h"

/*
 * Loads the key, or makes it if there is none, and writes the public part where it is not there or another. 0, or a
 * negative errno that has been logged.
 */
int audit_key_open(int state_dir_fd, struct p256_key **ret);

/*
 * Puts text in the place of the file, whole or not at all, and on disk: under another name first. 0 or a negative
 * errno.
 */
int audit_state_write(int dir_fd, const char *name, mode_t mode, const char *text);
