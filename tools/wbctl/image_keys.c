/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

static int complain(const char *path, int error)
{
        if (error == -EBADMSG)
                fprintf(stderr, "wbctl: image: %s: not an unencrypted P-256 key in PEM of the kind that is wanted\n",
                        path);
        else
                fprintf(stderr, "wbctl: image: %s: %s\n", path, strerror(-error));
        return error;
}

/* ---- public keys */

static int add(struct image_keys *keys, const char *path)
{
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r = keys->n == IMAGE_KEYS_MAX ? -E2BIG : io_read_file(path, P256_PEM_MAX_BYTES, &text, &n);

        if (r == 0)
                r = p256_read_public(text, n, &keys->items[keys->n]);
        if (r < 0)
                return complain(path, r);
        keys->n++;
        return 0;
}

static int add_named(struct image_keys *keys, const char *names)
{
        _cleanup_free_ char *copy = strdup(names);
        int r = copy ? 0 : -ENOMEM;

        for (char *name, *rest = copy; r == 0 && (name = strsep(&rest, ":"));)
                if (*name)
                        r = add(keys, name);
        return r;
}

int image_keys_load(const struct option_strings *files, struct image_keys *ret)
{
        const char *named = getenv(IMAGE_KEYS_ENV);
        struct image_keys keys = {0};
        int r = 0;

        for (size_t i = 0; r == 0 && i < files->n; i++)
                r = add(&keys, files->items[i]);
        if (files->n == 0 && named)
                r = add_named(&keys, named);
        if (r < 0) {
                image_keys_done(&keys);
                return r;
        }
        *ret = keys;
        return 0;
}

void image_keys_done(struct image_keys *keys)
{
        for (size_t i = 0; i < keys->n; i++)
                p256_free(keys->items[i]);
        keys->n = 0;
}

const struct p256_key *image_keys_find(const struct image_keys *keys, const uint8_t fingerprint[SHA256_BYTES])
{
        for (size_t i = 0; i < keys->n; i++) {
                uint8_t own[SHA256_BYTES];

                p256_fingerprint(keys->items[i], own);
                if (memcmp(own, fingerprint, sizeof(own)) == 0)
                        return keys->items[i];
        }
        return NULL;
}

/* ---- the private key */

int image_keys_open_private(const char *path, struct p256_key **ret)
{
        /* A FIFO must not hold us up before it is seen to be none of ours. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t n;
        int r;

        if (fd < 0 || fstat(fd, &st) < 0)
                return complain(path, -errno);
        if (!S_ISREG(st.st_mode) || st.st_mode & (S_IRWXG | S_IRWXO)) {
                fprintf(stderr,
                        "wbctl: image: %s: a private key is a file of mode 0600, which others cannot read: "
                        "chmod 600 %s\n",
                        path, path);
                return -EPERM;
        }
        r = io_read_fd(fd, P256_PEM_MAX_BYTES, &text, &n);
        if (r < 0)
                return complain(path, r);
        r = p256_read_private(text, n, ret);
        explicit_bzero(text, n);
        return r < 0 ? complain(path, r) : 0;
}

static int write_key(const char *path, const char *text, mode_t mode)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        int r = fd < 0 ? -errno : 0;

        if (r < 0)
                return complain(path, r);
        r = io_write_full(fd, text, strlen(text));
        if (r == 0 && fsync(fd) < 0)
                r = -errno;
        if (r < 0)
                (void)unlink(path);
        return r < 0 ? complain(path, r) : 0;
}

static int write_pair(const char *path, const char *public_path, const struct p256_key *key)
{
        char text[P256_PEM_MAX_BYTES];
        int r = p256_write_public(key, text);

        if (r < 0)
                return complain(public_path, r);
        if ((r = write_key(public_path, text, 0644)) < 0)
                return r;
        r = p256_write_private(key, text);
        r = r < 0 ? complain(path, r) : write_key(path, text, 0600);
        explicit_bzero(text, sizeof(text));
        if (r < 0)
                (void)unlink(public_path);
        return r;
}

int image_keys_make(const char *path, struct p256_key **ret)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        _cleanup_free_ char *public_path = NULL;
        int r = p256_make(&key);

        if (r < 0)
                return complain(path, r);
        if (asprintf(&public_path, "%s.pub", path) < 0) {
                public_path = NULL;
                return complain(path, -ENOMEM);
        }
        r = write_pair(path, public_path, key);
        if (r == 0)
                *ret = STEAL(key);
        return r;
}
