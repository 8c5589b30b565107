/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The keys of images: whose signature is believed, and the one that signs. */

#include <stddef.h>

#include "proto/base/options.h"
#include "proto/base/p256.h"

#define IMAGE_KEYS_MAX 16u
#define IMAGE_KEYS_ENV "WB_IMAGE_KEY" /* public keys' files, with colons between them */

struct image_keys {
        struct p256_key *items[IMAGE_KEYS_MAX];
        size_t n;
};

/*
 * The public keys in files; without files, those that WB_IMAGE_KEY names; without that none. 0, or a negative errno
 * with the reason on stderr; *ret is for image_keys_done() after 0 only.
 */
int image_keys_load(const struct option_strings *files, struct image_keys *ret);
void image_keys_done(struct image_keys *keys);

/* NULL if no key has it. */
const struct p256_key *image_keys_find(const struct image_keys *keys, const uint8_t fingerprint[SHA256_BYTES]);

/*
 * The private key in a file that nobody but its owner may read or write. 0, or a negative errno with the reason on
 * stderr. The caller frees *ret.
 */
int image_keys_open_private(const char *path, struct p256_key **ret);

/* A new pair: the private key in path (mode 0600), the public one in path.pub; neither may exist. Otherwise the same.
 */
int image_keys_make(const char *path, struct p256_key **ret);
