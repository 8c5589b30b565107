/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_check.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/base/cleanup.h"
#include "tools/wbctl/printable.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* linux/memfd.h, from 6.3 on */
#endif

#define COPY_FLAGS (MFD_CLOEXEC | MFD_ALLOW_SEALING)
#define COPY_SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static const char *const result_names[] = {
        [IMAGE_CHECK_WHOLE] = "whole",
        [IMAGE_CHECK_UNSIGNED] = "unsigned",
        [IMAGE_CHECK_OTHER_KEY] = "other_key",
        [IMAGE_CHECK_BAD_SIGNATURE] = "bad_signature",
        [IMAGE_CHECK_INVALID_MANIFEST] = "invalid_manifest",
        [IMAGE_CHECK_ALTERED] = "altered",
};
static_assert(sizeof(result_names) / sizeof(result_names[0]) == IMAGE_CHECK_RESULTS, "a name for each result");

static const char *const flaw_names[] = {
        [IMAGE_FLAW_ALTERED] = "altered",
        [IMAGE_FLAW_MISSING] = "missing",
        [IMAGE_FLAW_EXTRA] = "extra",
        [IMAGE_FLAW_IRREGULAR] = "not_regular",
        [IMAGE_FLAW_UNREADABLE] = "unreadable",
};
static_assert(sizeof(flaw_names) / sizeof(flaw_names[0]) == IMAGE_FLAW_KINDS, "a name for each kind");

static const char *const copy_names[] = {
        [IMAGE_COPY_CMDLINE] = "cmdline",
        [IMAGE_COPY_INITRD] = "initrd",
        [IMAGE_COPY_KERNEL] = "kernel",
};
static_assert(sizeof(copy_names) / sizeof(copy_names[0]) == IMAGE_COPIES, "a name for each copy");

const char *image_check_name(enum image_check_result result)
{
        return result_names[result];
}

const char *image_flaw_name(enum image_flaw_kind kind)
{
        return flaw_names[kind];
}

/* ---- copies */

void image_copies_close(struct image_copies *copies)
{
        for (size_t i = 0; i < IMAGE_COPIES; i++)
                copies->fds[i] = close_fd(copies->fds[i]);
}

static int make_copies(struct image_copies *copies)
{
        for (size_t i = 0; i < IMAGE_COPIES; i++) {
                /* A host may refuse what could be executed (sysctl vm.memfd_noexec); an older one does not know of it.
                 */
                copies->fds[i] = memfd_create(copy_names[i], COPY_FLAGS | MFD_NOEXEC_SEAL);
                if (copies->fds[i] < 0 && errno == EINVAL)
                        copies->fds[i] = memfd_create(copy_names[i], COPY_FLAGS);
                if (copies->fds[i] < 0)
                        return -errno;
        }
        return 0;
}

static int seal_copies(const struct image_copies *copies)
{
        for (size_t i = 0; i < IMAGE_COPIES; i++)
                if (lseek(copies->fds[i], 0, SEEK_SET) < 0 || fcntl(copies->fds[i], F_ADD_SEALS, COPY_SEALS) < 0)
                        return -errno;
        return 0;
}

/* Where a file's bytes go; -1: nowhere. */
static int copy_of(const struct image_copies *copies, const char *name)
{
        for (size_t i = 0; copies && i < IMAGE_COPIES; i++)
                if (strcmp(copy_names[i], name) == 0)
                        return copies->fds[i];
        return -1;
}

/* ---- the signature */

/* True when there is a text; otherwise the result is set. */
static bool read_signed(
        int dir_fd, const char *name, size_t max_bytes, char **ret_text, size_t *ret_n, struct image_check *check)
{
        int r = image_directory_read(dir_fd, name, max_bytes, ret_text, ret_n);

        if (r == 0)
                return true;
        /* What is larger than any is none that was signed. */
        check->result = r == -EFBIG ? IMAGE_CHECK_BAD_SIGNATURE : IMAGE_CHECK_UNSIGNED;
        check->missing = name;
        check->missing_error = r < 0 ? -r : 0;
        return false;
}

/* The signature is believed before a byte of the manifest is; without one, what it says is only for the message. */
static int check_manifest(const struct image_keys *keys, const char *text, size_t n, const uint8_t *signature,
        size_t signature_n, struct image_check *check)
{
        const struct p256_key *signer = NULL;
        uint8_t fingerprint[SHA256_BYTES];
        int parsed;

        for (size_t i = 0; !signer && i < keys->n; i++) {
                int r = p256_verify(keys->items[i], text, n, signature, signature_n);

                if (r < 0)
                        return r;
                if (r == 0)
                        signer = keys->items[i];
        }
        parsed = image_manifest_parse(text, n, &check->manifest, &check->invalid);
        if (!signer) {
                check->result = parsed == 0 && !image_keys_find(keys, check->manifest.key) ? IMAGE_CHECK_OTHER_KEY
                                                                                           : IMAGE_CHECK_BAD_SIGNATURE;
                return 0;
        }
        p256_fingerprint(signer, fingerprint);
        if (parsed == 0 && memcmp(fingerprint, check->manifest.key, sizeof(fingerprint)) != 0) {
                check->invalid = (struct image_manifest_error){.line = 1, .reason = "names another key than signed it"};
                parsed = IMAGE_MANIFEST_E_INVALID;
        }
        check->result = parsed == 0 ? IMAGE_CHECK_WHOLE : IMAGE_CHECK_INVALID_MANIFEST;
        return 0;
}

static int check_signature(int dir_fd, const struct image_keys *keys, struct image_check *check)
{
        _cleanup_free_ char *signature = NULL;
        _cleanup_free_ char *text = NULL;
        size_t signature_n, n;

        if (!read_signed(dir_fd, IMAGE_MANIFEST_FILE, IMAGE_MANIFEST_MAX_BYTES, &text, &n, check) ||
                !read_signed(
                        dir_fd, IMAGE_MANIFEST_SIGNATURE, P256_SIGNATURE_MAX_BYTES, &signature, &signature_n, check))
                return 0;
        return check_manifest(keys, text, n, (const uint8_t *)signature, signature_n, check);
}

/* ---- the files */

static void note(struct image_check *check, enum image_flaw_kind kind, const char *name, int error)
{
        struct image_flaw *flaw;

        check->result = IMAGE_CHECK_ALTERED;
        if (check->flaws_n == IMAGE_FLAWS_MAX) {
                check->flaws_more = true;
                return;
        }
        flaw = &check->flaws[check->flaws_n++];
        flaw->kind = kind;
        flaw->error = error;
        (void)snprintf(flaw->name, sizeof(flaw->name), "%s", name);
}

static void check_file(int dir_fd, const struct image_manifest_file *file, int copy_fd, struct image_check *check)
{
        uint8_t digest[SHA256_BYTES];
        uint64_t bytes = 0;
        int r = image_directory_hash(dir_fd, file->name, file->bytes, copy_fd, digest, &bytes);

        if (r == -EFBIG || (r == 0 && (bytes != file->bytes || memcmp(digest, file->digest, sizeof(digest)) != 0)))
                note(check, IMAGE_FLAW_ALTERED, file->name, 0);
        else if (r == -ENOENT)
                note(check, IMAGE_FLAW_MISSING, file->name, 0);
        else if (r == IMAGE_DIRECTORY_E_IRREGULAR)
                note(check, IMAGE_FLAW_IRREGULAR, file->name, 0);
        else if (r < 0)
                note(check, IMAGE_FLAW_UNREADABLE, file->name, -r);
}

static int check_entry(void *userdata, const char *name)
{
        struct image_check *check = userdata;

        if (!image_manifest_find(&check->manifest, name))
                note(check, IMAGE_FLAW_EXTRA, name, 0);
        return check->flaws_more ? 1 : 0;
}

static int check_files(int dir_fd, const struct image_copies *copies, struct image_check *check)
{
        int r;

        for (size_t i = 0; i < check->manifest.files_n; i++) {
                const struct image_manifest_file *file = &check->manifest.files[i];

                check_file(dir_fd, file, copy_of(copies, file->name), check);
        }
        r = image_directory_list(dir_fd, check_entry, check);
        return r < 0 ? r : 0;
}

static int check_directory(
        const char *directory, const struct image_keys *keys, struct image_copies *copies, struct image_check *check)
{
        _cleanup_close_ int dir_fd = -1;
        int r = image_directory_open(directory, &dir_fd);

        if (r == 0)
                r = check_signature(dir_fd, keys, check);
        if (r < 0 || check->result != IMAGE_CHECK_WHOLE)
                return r;
        r = copies ? make_copies(copies) : 0;
        if (r == 0)
                r = check_files(dir_fd, copies, check);
        if (r == 0 && copies && check->result == IMAGE_CHECK_WHOLE)
                r = seal_copies(copies);
        return r;
}

int image_check(
        const char *directory, const struct image_keys *keys, struct image_copies *ret_copies, struct image_check *ret)
{
        struct image_copies copies = {.fds = {-1, -1, -1}};
        int r;

        *ret = (struct image_check){.result = IMAGE_CHECK_UNSIGNED};
        r = check_directory(directory, keys, ret_copies ? &copies : NULL, ret);
        if (r == 0 && ret->result == IMAGE_CHECK_WHOLE && ret_copies)
                *ret_copies = copies;
        else
                image_copies_close(&copies);
        return r;
}

/* ---- for a person */

static void print_flaw(const struct image_flaw *flaw, const char *directory, const char *prefix, FILE *to)
{
        static const char *const words[] = {
                [IMAGE_FLAW_ALTERED] = "altered",
                [IMAGE_FLAW_MISSING] = "missing",
                [IMAGE_FLAW_EXTRA] = "not in the manifest",
                [IMAGE_FLAW_IRREGULAR] = "not a regular file",
                [IMAGE_FLAW_UNREADABLE] = "cannot be read",
        };
        char name[IMAGE_FLAW_NAME_BYTES];

        static_assert(sizeof(words) / sizeof(words[0]) == IMAGE_FLAW_KINDS, "words for each kind");
        printable(flaw->name, name, sizeof(name));
        fprintf(to, "%s%s: %s: %s%s%s\n", prefix, directory, name, words[flaw->kind], flaw->error ? ": " : "",
                flaw->error ? strerror(flaw->error) : "");
}

static void print_unsigned(const struct image_check *check, const char *directory, const char *prefix, FILE *to)
{
        if (check->missing_error == ENOENT)
                fprintf(to, "%s%s: not signed: no %s\n", prefix, directory, check->missing);
        else
                fprintf(to, "%s%s: not signed: %s: %s\n", prefix, directory, check->missing,
                        check->missing_error ? strerror(check->missing_error) : "not a regular file");
}

void image_check_print(const struct image_check *check, const char *directory, const char *prefix, FILE *to)
{
        char key[SHA256_TEXT_BYTES];

        sha256_text(check->manifest.key, key);
        switch (check->result) {
        case IMAGE_CHECK_WHOLE:
                fprintf(to, "%s%s: whole: image %s, agent %s, signed by %s\n", prefix, directory, check->manifest.name,
                        check->manifest.agent, key);
                break;
        case IMAGE_CHECK_UNSIGNED: print_unsigned(check, directory, prefix, to); break;
        case IMAGE_CHECK_OTHER_KEY:
                fprintf(to, "%s%s: not signed by a key that was given; the manifest names key %s\n", prefix, directory,
                        key);
                break;
        case IMAGE_CHECK_BAD_SIGNATURE:
                fprintf(to, "%s%s: the signature is not that of the manifest: one of them was altered\n", prefix,
                        directory);
                break;
        case IMAGE_CHECK_INVALID_MANIFEST:
                fprintf(to, "%s%s: %s:%zu: it %s\n", prefix, directory, IMAGE_MANIFEST_FILE, check->invalid.line,
                        check->invalid.reason);
                break;
        case IMAGE_CHECK_ALTERED:
                for (size_t i = 0; i < check->flaws_n; i++)
                        print_flaw(&check->flaws[i], directory, prefix, to);
                if (check->flaws_more)
                        fprintf(to, "%s%s: and more\n", prefix, directory);
                break;
        case IMAGE_CHECK_RESULTS: break;
        }
}
