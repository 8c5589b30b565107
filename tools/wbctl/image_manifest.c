/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_manifest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/wbctl/strict_text.h"

#define HEAD         "wb-image "
#define VERSION      "1 "
#define DIGEST_CHARS (SHA256_TEXT_BYTES - 1)
#define SIZE_CHARS   19u /* of INT64_MAX */
#define HEAD_MAX     (sizeof(HEAD VERSION "name= agent= key=\n") + 2 * IMAGE_MANIFEST_WORD_BYTES + DIGEST_CHARS)
#define FILE_MAX     (DIGEST_CHARS + 2 + SIZE_CHARS + 2 + IMAGE_MANIFEST_NAME_BYTES)

static_assert(
        HEAD_MAX + IMAGE_MANIFEST_FILES_MAX * FILE_MAX < IMAGE_MANIFEST_MAX_BYTES, "the fullest manifest has room");

static const char *const required[] = {"cmdline", "initrd", "kernel"};

#define REQUIRED_N (sizeof(required) / sizeof(required[0]))

static bool is_word_char(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("._+~-", c) != NULL);
}

static bool is_file_char(char c)
{
        return c > ' ' && c <= '~' && c != '/';
}

bool image_manifest_is_word(const char *text)
{
        size_t n = 0;

        while (is_word_char(text[n]))
                n++;
        return n > 0 && n < IMAGE_MANIFEST_WORD_BYTES && text[n] == '\0';
}

bool image_manifest_is_file(const char *name)
{
        size_t n = 0;

        while (is_file_char(name[n]))
                n++;
        return n > 0 && n < IMAGE_MANIFEST_NAME_BYTES && name[n] == '\0' && strcmp(name, ".") != 0 &&
               strcmp(name, "..") != 0 && strcmp(name, IMAGE_MANIFEST_FILE) != 0 &&
               strcmp(name, IMAGE_MANIFEST_SIGNATURE) != 0;
}

/* The first file whose name is not below this one. */
static size_t place_of(const struct image_manifest *m, const char *name)
{
        size_t low = 0, high = m->files_n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (strcmp(m->files[middle].name, name) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

const struct image_manifest_file *image_manifest_find(const struct image_manifest *m, const char *name)
{
        size_t at = place_of(m, name);

        return at < m->files_n && strcmp(m->files[at].name, name) == 0 ? &m->files[at] : NULL;
}

int image_manifest_add(struct image_manifest *m, const struct image_manifest_file *file)
{
        size_t at;

        if (!image_manifest_is_file(file->name) || file->bytes > INT64_MAX)
                return -EINVAL;
        if (m->files_n == IMAGE_MANIFEST_FILES_MAX)
                return -E2BIG;
        at = place_of(m, file->name);
        if (at < m->files_n && strcmp(m->files[at].name, file->name) == 0)
                return -EEXIST;
        memmove(&m->files[at + 1], &m->files[at], (m->files_n - at) * sizeof(m->files[0]));
        m->files[at] = *file;
        m->files_n++;
        return 0;
}

/* ---- from text */

/* NULL, or what is wrong. */
static const char *take_head(struct strict_text *t, struct image_manifest *m)
{
        if (!strict_text_take(t, HEAD))
                return "is not the manifest of an image";
        if (!strict_text_take(t, VERSION))
                return "has another version than 1, the one that is known here";
        if (!strict_text_take(t, "name=") || !strict_text_take_chars(t, is_word_char, m->name, sizeof(m->name)))
                return "lacks the image's name";
        if (!strict_text_take(t, " agent=") || !strict_text_take_chars(t, is_word_char, m->agent, sizeof(m->agent)))
                return "lacks the agent's version";
        if (!strict_text_take(t, " key=") || !strict_text_take_digest(t, m->key))
                return "lacks the key's fingerprint";
        return strict_text_take(t, "\n") ? NULL : "has more than belongs there";
}

static const char *take_file(struct strict_text *t, struct image_manifest *m)
{
        struct image_manifest_file file = {0};

        if (!strict_text_take_digest(t, file.digest) || !strict_text_take(t, "  "))
                return "does not begin with a SHA-256 and two spaces";
        if (!strict_text_take_number(t, 0, INT64_MAX, &file.bytes) || !strict_text_take(t, "  "))
                return "has no size with two spaces behind it";
        if (!strict_text_take_chars(t, is_file_char, file.name, sizeof(file.name)) || !strict_text_take(t, "\n") ||
                !image_manifest_is_file(file.name))
                return "has no file's name, or more than that";
        if (m->files_n == IMAGE_MANIFEST_FILES_MAX)
                return "is one file too many";
        if (m->files_n > 0 && strcmp(m->files[m->files_n - 1].name, file.name) >= 0)
                return "is not in order";
        m->files[m->files_n++] = file;
        return NULL;
}

static const char *check_required(const struct image_manifest *m)
{
        static const char *const reasons[] = {"has no cmdline", "has no initrd", "has no kernel"};

        static_assert(sizeof(reasons) / sizeof(reasons[0]) == REQUIRED_N, "a reason for each");
        for (size_t i = 0; i < REQUIRED_N; i++)
                if (!image_manifest_find(m, required[i]))
                        return reasons[i];
        return NULL;
}

int image_manifest_parse(const char *text, size_t n, struct image_manifest *ret, struct image_manifest_error *ret_error)
{
        struct image_manifest m = {0};
        struct strict_text t = {.at = text, .end = text + n};
        bool fits = n <= IMAGE_MANIFEST_MAX_BYTES;
        size_t line = fits ? 1 : 0;
        const char *reason = fits ? take_head(&t, &m) : "is too large";

        while (!reason && strict_text_left(&t) > 0) {
                line++;
                reason = take_file(&t, &m);
        }
        if (!reason) {
                line = 0;
                reason = check_required(&m);
        }
        if (reason) {
                *ret_error = (struct image_manifest_error){.line = line, .reason = reason};
                return IMAGE_MANIFEST_E_INVALID;
        }
        *ret = m;
        return 0;
}

/* ---- to text */

size_t image_manifest_format(const struct image_manifest *m, char ret_text[IMAGE_MANIFEST_MAX_BYTES])
{
        char digest[SHA256_TEXT_BYTES];
        size_t n;

        sha256_text(m->key, digest);
        n = (size_t)snprintf(ret_text, IMAGE_MANIFEST_MAX_BYTES, HEAD VERSION "name=%s agent=%s key=%s\n", m->name,
                m->agent, digest);
        for (size_t i = 0; i < m->files_n; i++) {
                const struct image_manifest_file *file = &m->files[i];

                sha256_text(file->digest, digest);
                n += (size_t)snprintf(ret_text + n, IMAGE_MANIFEST_MAX_BYTES - n, "%s  %" PRIu64 "  %s\n", digest,
                        file->bytes, file->name);
        }
        assert(n < IMAGE_MANIFEST_MAX_BYTES);
        return n;
}
