/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The manifest of an image: what is in its directory. Pure. It is plain text, one form only, so that the same content
 * has the same bytes:
 *
 *     wb-image 1 name=NAME agent=VERSION key=FINGERPRINT
 *     SHA256  SIZE  FILE
 *     ...
 *
 * NAME and VERSION are what the image says of itself (VERSION is `-` where it says nothing), FINGERPRINT names the key
 * that signs it (p256_fingerprint()). One line a file, in the order of strcmp(), each once; digests in lower-case hex,
 * sizes in decimal. Each line ends with a newline, the last one too. kernel, initrd and cmdline are always there; the
 * manifest and its signature are not.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/sha256.h"

#define IMAGE_MANIFEST_FILE      "manifest"
#define IMAGE_MANIFEST_SIGNATURE "manifest.sig"

#define IMAGE_MANIFEST_FILES_MAX  128u
#define IMAGE_MANIFEST_NAME_BYTES 129u /* of a file: at most 128 and a NUL */
#define IMAGE_MANIFEST_WORD_BYTES 65u  /* of the image's name and the agent's version, with the NUL */
#define IMAGE_MANIFEST_MAX_BYTES  32768u

/* image_manifest_parse(): it is no such text. */
#define IMAGE_MANIFEST_E_INVALID 1

struct image_manifest_file {
        char name[IMAGE_MANIFEST_NAME_BYTES];
        uint64_t bytes;
        uint8_t digest[SHA256_BYTES];
};

struct image_manifest {
        char name[IMAGE_MANIFEST_WORD_BYTES];
        char agent[IMAGE_MANIFEST_WORD_BYTES];
        uint8_t key[SHA256_BYTES];
        size_t files_n;
        struct image_manifest_file files[IMAGE_MANIFEST_FILES_MAX];
};

struct image_manifest_error {
        size_t line; /* from 1; 0: the whole */
        const char *reason;
};

/* 0, or IMAGE_MANIFEST_E_INVALID with *ret_error. */
int image_manifest_parse(
        const char *text, size_t n, struct image_manifest *ret, struct image_manifest_error *ret_error);

/* Letters, digits and . _ + ~ -, at most 64 of them. */
bool image_manifest_is_word(const char *text);

/* Visible ASCII without a slash; neither . nor .. nor the manifest's own files. */
bool image_manifest_is_file(const char *name);

/* Keeps the order. 0; -EINVAL if no file can be named so; -EEXIST; -E2BIG when the manifest is full. */
int image_manifest_add(struct image_manifest *m, const struct image_manifest_file *file);

/* NULL if it is not there. */
const struct image_manifest_file *image_manifest_find(const struct image_manifest *m, const char *name);

/* The bytes written; there is no NUL behind them. */
size_t image_manifest_format(const struct image_manifest *m, char ret_text[IMAGE_MANIFEST_MAX_BYTES]);
