/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Is an image what a key's owner signed? The signature is checked first, over the manifest's bytes as they were read;
 * then every file against the manifest, and the directory for files that it does not name.
 *
 * Who boots the image asks for copies: each is written while it is hashed and sealed afterwards, so that nobody can
 * make of it what was not verified, in place or by another name. They are memory, as large as the files.
 */

#include <stdbool.h>
#include <stdio.h>

#include "tools/wbctl/image_directory.h"
#include "tools/wbctl/image_keys.h"

enum image_check_result {
        IMAGE_CHECK_WHOLE,
        IMAGE_CHECK_UNSIGNED,         /* no manifest, or no signature */
        IMAGE_CHECK_OTHER_KEY,        /* the manifest names a key that is not among those given */
        IMAGE_CHECK_BAD_SIGNATURE,    /* the signature is not that of the manifest */
        IMAGE_CHECK_INVALID_MANIFEST, /* signed, but no manifest */
        IMAGE_CHECK_ALTERED,          /* see the flaws */
        IMAGE_CHECK_RESULTS,
};

enum image_flaw_kind {
        IMAGE_FLAW_ALTERED,
        IMAGE_FLAW_MISSING,
        IMAGE_FLAW_EXTRA,
        IMAGE_FLAW_IRREGULAR,  /* a link, a directory, a device */
        IMAGE_FLAW_UNREADABLE, /* error says why */
        IMAGE_FLAW_KINDS,
};

#define IMAGE_FLAWS_MAX       32u
#define IMAGE_FLAW_NAME_BYTES 256u /* NAME_MAX and a NUL */

struct image_flaw {
        enum image_flaw_kind kind;
        int error;
        char name[IMAGE_FLAW_NAME_BYTES]; /* any bytes: for printable() */
};

struct image_check {
        enum image_check_result result;
        const char *missing;                 /* UNSIGNED: the file that is not there, or is none that can be read */
        int missing_error;                   /* ENOENT; 0: not a regular file; else why it cannot be read */
        struct image_manifest_error invalid; /* INVALID_MANIFEST */
        struct image_manifest manifest;      /* signed: WHOLE, ALTERED; what it says only: OTHER_KEY */
        struct image_flaw flaws[IMAGE_FLAWS_MAX];
        size_t flaws_n;
        bool flaws_more; /* there are more than these */
};

enum image_copy {
        IMAGE_COPY_CMDLINE,
        IMAGE_COPY_INITRD,
        IMAGE_COPY_KERNEL,
        IMAGE_COPIES,
};

struct image_copies {
        int fds[IMAGE_COPIES]; /* sealed memory files */
};

/*
 * copies may be NULL; it is set, for image_copies_close(), when the result is IMAGE_CHECK_WHOLE, and untouched else.
 * 0, or a negative errno when the directory cannot be read or there is no memory.
 */
int image_check(
        const char *directory, const struct image_keys *keys, struct image_copies *ret_copies, struct image_check *ret);
void image_copies_close(struct image_copies *copies);

const char *image_check_name(enum image_check_result result); /* as JSON has it: "whole" */
const char *image_flaw_name(enum image_flaw_kind kind);

/* What came of it for a person, a line for each flaw; each line begins with prefix and the directory. */
void image_check_print(const struct image_check *check, const char *directory, const char *prefix, FILE *to);
