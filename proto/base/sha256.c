/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/sha256.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <mbedtls/md.h>

#include "proto/base/io.h"

#define READ_BYTES 65536u

int sha256_bytes(const void *bytes, size_t n, uint8_t ret_digest[SHA256_BYTES])
{
        const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);

        return sha256 && mbedtls_md(sha256, bytes, n, ret_digest) == 0 ? 0 : -ENOTSUP;
}

int sha256_parts(const struct iovec *parts, size_t parts_n, uint8_t ret_digest[SHA256_BYTES])
{
        const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
        mbedtls_md_context_t context;
        int r;

        mbedtls_md_init(&context);
        r = sha256 ? mbedtls_md_setup(&context, sha256, 0) : -1;
        if (r == 0)
                r = mbedtls_md_starts(&context);
        for (size_t i = 0; i < parts_n && r == 0; i++)
                r = mbedtls_md_update(&context, parts[i].iov_base, parts[i].iov_len);
        if (r == 0)
                r = mbedtls_md_finish(&context, ret_digest);
        mbedtls_md_free(&context);
        return r == 0 ? 0 : -ENOTSUP;
}

static int hash_file(mbedtls_md_context_t *context, int fd, uint64_t most_bytes, int copy_fd, uint64_t *ret_bytes)
{
        unsigned char bytes[READ_BYTES];
        uint64_t total = 0;

        for (;;) {
                ssize_t n = pread(fd, bytes, sizeof(bytes), (off_t)total);
                int r = 0;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                if ((uint64_t)n > most_bytes - total)
                        return -EFBIG;
                total += (uint64_t)n;
                if (mbedtls_md_update(context, bytes, (size_t)n) != 0)
                        return -EIO;
                if (copy_fd >= 0 && (r = io_write_full(copy_fd, bytes, (size_t)n)) < 0)
                        return r;
        }
        *ret_bytes = total;
        return 0;
}

int sha256_file(int fd, uint64_t most_bytes, int copy_fd, uint8_t ret_digest[SHA256_BYTES], uint64_t *ret_bytes)
{
        const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
        mbedtls_md_context_t context;
        uint8_t digest[SHA256_BYTES];
        uint64_t n = 0;
        int r;

        mbedtls_md_init(&context);
        r = sha256 && mbedtls_md_setup(&context, sha256, 0) == 0 && mbedtls_md_starts(&context) == 0 ? 0 : -ENOTSUP;
        if (r == 0)
                r = hash_file(&context, fd, most_bytes, copy_fd, &n);
        if (r == 0 && mbedtls_md_finish(&context, digest) != 0)
                r = -EIO;
        mbedtls_md_free(&context);
        if (r < 0)
                return r;
        memcpy(ret_digest, digest, sizeof(digest));
        *ret_bytes = n;
        return 0;
}

void sha256_text(const uint8_t digest[SHA256_BYTES], char ret_text[SHA256_TEXT_BYTES])
{
        static const char digits[] = "0123456789abcdef";

        for (size_t i = 0; i < SHA256_BYTES; i++) {
                ret_text[2 * i] = digits[digest[i] >> 4];
                ret_text[2 * i + 1] = digits[digest[i] & 15];
        }
        ret_text[2 * (size_t)SHA256_BYTES] = '\0';
}

/* -1: none. */
static int digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int sha256_parse(const char *text, uint8_t ret_digest[SHA256_BYTES])
{
        uint8_t digest[SHA256_BYTES];

        for (size_t i = 0; i < SHA256_BYTES; i++) {
                int high = digit(text[2 * i]);
                int low = high < 0 ? -1 : digit(text[2 * i + 1]);

                if (low < 0)
                        return -EINVAL;
                digest[i] = (uint8_t)(high << 4 | low);
        }
        memcpy(ret_digest, digest, sizeof(digest));
        return 0;
}
