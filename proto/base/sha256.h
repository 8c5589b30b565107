/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SHA-256 of bytes and of files. Library wb_crypto, which wb_base's users need not link. */

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SHA256_BYTES      32u
#define SHA256_TEXT_BYTES 65u /* lower-case hex and a NUL */

/* 0 or -ENOTSUP. The second: of the parts one behind the other. */
int sha256_bytes(const void *bytes, size_t n, uint8_t ret_digest[SHA256_BYTES]);
int sha256_parts(const struct iovec *parts, size_t parts_n, uint8_t ret_digest[SHA256_BYTES]);

/*
 * A file from its beginning, by pread(): the descriptor's offset stays. copy_fd, if not negative, gets exactly the
 * bytes that were hashed. 0; -EFBIG when there are more than most_bytes; or a negative errno.
 */
int sha256_file(int fd, uint64_t most_bytes, int copy_fd, uint8_t ret_digest[SHA256_BYTES], uint64_t *ret_bytes);

void sha256_text(const uint8_t digest[SHA256_BYTES], char ret_text[SHA256_TEXT_BYTES]);

/* 64 digits of lower-case hex at text, whatever follows. 0 or -EINVAL. */
int sha256_parse(const char *text, uint8_t ret_digest[SHA256_BYTES]);
