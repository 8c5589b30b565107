/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tools/wbctl/image_keys.h"

/*
 * Writes the manifest of the image in a directory and its signature. name is what the image is called; NULL: the
 * directory's own name. 0, or the exit status of wbctl with the reason on stderr; then nothing was signed.
 */
int image_sign(const char *directory, const char *name, const struct p256_key *key);
