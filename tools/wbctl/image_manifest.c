/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_manifest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

struct cursor {
        const char *at;
        const char *end;
};

static size_t left_of(const struct cursor *c)
{
        return (size_t)(c->end - c->at);
}

static bool take(struct cursor *c, const char *text)
{
        size_t n = strlen(text);

        if (left_of(c) < n || memcmp(c->at, text, n) != 0)
                return false;
        c->at += n;
        return true;
}

static bool take_digest(struct cursor *c, uint8_t ret[SHA256_BYTES])
{
        if (left_of(c) < DIGEST_CHARS || sha256_parse(c->at, ret) < 0)
                return false;
        c->at += DIGEST_CHARS;
        return true;
}

static bool take_chars(struct cursor *c, bool (*is_char)(char), char *ret, size_t room)
{
        size_t n = 0;

        while (n < left_of(c) && is_char(c->at[n]))
                n++;
        if (n == 0 || n >= room)
                return false;
        memcpy(ret, c->at, n);
        ret[n] = '\0';
        c->at += n;
        return true;
}

/* One form only: no zero before another digit. */
static bool take_size(struct cursor *c, uint64_t *ret)
{
        uint64_t value = 0;
        size_t n = 0;

        for (; n < left_of(c) && c->at[n] >= '0' && c->at[n] <= '9'; n++) {
                unsigned digit = (unsigned)(c->at[n] - '0');

                if ((n > 0 && value == 0) || value > ((uint64_t)INT64_MAX - digit) / 10)
                        return false;
                value = value * 10 + digit;
        }
        if (n == 0)
                return false;
        c->at += n;
        *ret = value;
        return true;
}

/* NULL, or what is wrong. */
static const char *take_head(struct cursor *c, struct image_manifest *m)
{
        if (!take(c, HEAD))
                return "is not the manifest of an image";
        if (!take(c, VERSION))
                return "has another version than 1, the one that is known here";
        if (!take(c, "name=") || !take_chars(c, is_word_char, m->name, sizeof(m->name)))
                return "lacks the image's name";
        if (!take(c, " agent=") || !take_chars(c, is_word_char, m->agent, sizeof(m->agent)))
                return "lacks the agent's version";
        if (!take(c, " key=") || !take_digest(c, m->key))
                return "lacks the key's fingerprint";
        return take(c, "\n") ? NULL : "has more than belongs there";
}

static const char *take_file(struct cursor *c, struct image_manifest *m)
{
        struct image_manifest_file file = {0};

        if (!take_digest(c, file.digest) || !take(c, "  "))
                return "does not begin with a SHA-256 and two spaces";
        if (!take_size(c, &file.bytes) || !take(c, "  "))
                return "has no size with two spaces behind it";
        if (!take_chars(c, is_file_char, file.name, sizeof(file.name)) || !take(c, "\n") ||
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
        struct cursor c = {.at = text, .end = text + n};
        bool fits = n <= IMAGE_MANIFEST_MAX_BYTES;
        size_t line = fits ? 1 : 0;
        const char *reason = fits ? take_head(&c, &m) : "is too large";

        while (!reason && left_of(&c) > 0) {
                line++;
                reason = take_file(&c, &m);
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
