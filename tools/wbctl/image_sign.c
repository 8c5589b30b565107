/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image sign: the manifest of an image, and the signature over it. */
#include "tools/wbctl/image_sign.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/image_command.h"
#include "tools/wbctl/image_directory.h"
#include "tools/wbctl/printable.h"

#define AGENT_FILE           "agent" /* what images/microvm/build writes there: "wbagent 0.1.0" */
#define AGENT_FILE_PREFIX    "wbagent "
#define AGENT_FILE_MAX_BYTES 256u
#define WRITING              ".manifest.new" /* until it is whole */

struct signing {
        int dir_fd;
        const char *directory; /* for messages */
        struct image_manifest manifest;
};

/* ---- what the image says of itself */

/* The last part of the directory's path, all links resolved. */
static int name_of_directory(const char *directory, char ret[IMAGE_MANIFEST_WORD_BYTES])
{
        _cleanup_free_ char *path = realpath(directory, NULL);
        const char *name = path ? strrchr(path, '/') + 1 : NULL;

        if (!path)
                return -errno;
        if (!image_manifest_is_word(name))
                return -EINVAL;
        (void)snprintf(ret, IMAGE_MANIFEST_WORD_BYTES, "%s", name);
        return 0;
}

static int set_name(struct signing *s, const char *name)
{
        int r = 0;

        if (!name)
                r = name_of_directory(s->directory, s->manifest.name);
        else if (!image_manifest_is_word(name))
                r = -EINVAL;
        else
                (void)snprintf(s->manifest.name, sizeof(s->manifest.name), "%s", name);
        if (r == -EINVAL)
                fprintf(stderr,
                        "wbctl: image sign: an image's name is 1 to 64 letters, digits and . _ + ~ -: give it one "
                        "with --name\n");
        return r;
}

/* `-` for an image that does not say. */
static void set_agent(struct signing *s)
{
        _cleanup_free_ char *text = NULL;
        const char *version = "-";
        size_t n = 0;

        if (image_directory_read(s->dir_fd, AGENT_FILE, AGENT_FILE_MAX_BYTES, &text, &n) == 0 &&
                strncmp(text, AGENT_FILE_PREFIX, strlen(AGENT_FILE_PREFIX)) == 0) {
                text[strcspn(text, "\n")] = '\0';
                version = text + strlen(AGENT_FILE_PREFIX);
        }
        (void)snprintf(
                s->manifest.agent, sizeof(s->manifest.agent), "%s", image_manifest_is_word(version) ? version : "-");
}

/* ---- its files */

static const char *explain(int error)
{
        switch (error) {
        case IMAGE_DIRECTORY_E_IRREGULAR: return "not a regular file: an image has no others";
        case -EINVAL: return "not a name for an image's file (visible ASCII, at most 128 bytes)";
        case -E2BIG: return "one file too many for an image";
        default: return strerror(-error);
        }
}

/* -EINVAL: an image has nothing like it. */
static int add_file(void *userdata, const char *name)
{
        struct signing *s = userdata;
        struct image_manifest_file file = {0};
        char shown[NAME_MAX + 1];
        int r = image_manifest_is_file(name) ? 0 : -EINVAL;

        if (r == 0) {
                (void)snprintf(file.name, sizeof(file.name), "%s", name);
                r = image_directory_hash(s->dir_fd, name, INT64_MAX, -1, file.digest, &file.bytes);
        }
        if (r == 0)
                r = image_manifest_add(&s->manifest, &file);
        if (r != 0) {
                printable(name, shown, sizeof(shown));
                fprintf(stderr, "wbctl: image sign: %s: %s: %s\n", s->directory, shown, explain(r));
        }
        return r == IMAGE_DIRECTORY_E_IRREGULAR || r == -E2BIG ? -EINVAL : r;
}

/* ---- manifest and signature */

/* Whole, or not at all. */
static int write_file(int dir_fd, const char *name, const void *bytes, size_t n)
{
        _cleanup_close_ int fd = -1;
        int r;

        fd = openat(dir_fd, WRITING, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
                return -errno;
        r = io_write_full(fd, bytes, n);
        if (r == 0 && (fchmod(fd, 0644) < 0 || fsync(fd) < 0 || renameat(dir_fd, WRITING, dir_fd, name) < 0))
                r = -errno;
        if (r < 0)
                (void)unlinkat(dir_fd, WRITING, 0);
        return r;
}

static int write_signed(const struct signing *s, const struct p256_key *key)
{
        uint8_t signature[P256_SIGNATURE_MAX_BYTES];
        char text[IMAGE_MANIFEST_MAX_BYTES];
        struct image_manifest_error error;
        struct image_manifest again;
        size_t n = image_manifest_format(&s->manifest, text);
        size_t signature_n = 0;
        int r = p256_sign(key, text, n, signature, &signature_n);

        /* What nobody could verify is not written. */
        if (image_manifest_parse(text, n, &again, &error) != 0) {
                fprintf(stderr, "wbctl: image sign: %s: not an image: it %s\n", s->directory, error.reason);
                return -EINVAL;
        }
        if (r == 0)
                r = write_file(s->dir_fd, IMAGE_MANIFEST_FILE, text, n);
        if (r == 0)
                r = write_file(s->dir_fd, IMAGE_MANIFEST_SIGNATURE, signature, signature_n);
        if (r < 0)
                fprintf(stderr, "wbctl: image sign: %s: %s\n", s->directory, strerror(-r));
        return r;
}

int image_sign(const char *directory, const char *name, const struct p256_key *key)
{
        struct signing s = {.dir_fd = -1, .directory = directory};
        _cleanup_close_ int dir_fd = -1;
        int r = image_directory_open(directory, &dir_fd);

        if (r < 0) {
                fprintf(stderr, "wbctl: image sign: %s: %s\n", directory, strerror(-r));
                return EXIT_USAGE;
        }
        s.dir_fd = dir_fd;
        if (set_name(&s, name) < 0)
                return EXIT_USAGE;
        set_agent(&s);
        p256_fingerprint(key, s.manifest.key);
        (void)unlinkat(dir_fd, WRITING, 0); /* of one that was killed */
        r = image_directory_list(dir_fd, add_file, &s);
        if (r == 0)
                r = write_signed(&s, key);
        if (r == 0)
                return 0;
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- the command */

struct sign_options {
        const char *key;
        const char *new_key;
        const char *name;
};

static const struct option_spec specs[] = {
        {"key", 0, OPTION_STRING, offsetof(struct sign_options, key), "FILE",
                "the private key: P-256, PEM, readable by nobody else"},
        {"new-key", 0, OPTION_STRING, offsetof(struct sign_options, new_key), "FILE",
                "make a key: FILE, and FILE.pub for those who verify"},
        {"name", 0, OPTION_STRING, offsetof(struct sign_options, name), "NAME",
                "what the image is called; absent: as its directory"},
};

static const struct option_table table = {
        .usage = "wbctl image sign (--key FILE | --new-key FILE) [--name NAME] [DIR]",
        .summary = "Writes an image's manifest (what is in it) and manifest.sig (ECDSA, SHA-256) into its directory.",
        .example = "wbctl image sign --new-key ~/image.key /srv/images/work",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static int sign_with(const struct sign_options *o, char **rest, size_t rest_n)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        int r;

        if (rest_n > 1)
                return options_usage_error(&table, "unexpected argument '%s'", rest[1]);
        if (!o->key == !o->new_key)
                return options_usage_error(&table, "either --key or --new-key");
        if (rest_n == 0 && !o->new_key)
                return options_usage_error(&table, "which image?");
        r = o->key ? image_keys_open_private(o->key, &key) : image_keys_make(o->new_key, &key);
        if (r < 0)
                return EXIT_USAGE;
        return rest_n == 0 ? 0 : image_sign(rest[0], o->name, key);
}

int image_sign_command(int argc, char **argv)
{
        struct sign_options options = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0)
                return sign_with(&options, rest, rest_n);
        return r == OPTIONS_E_HELP ? 0 : r < 0 ? EXIT_FAILED : r;
}
