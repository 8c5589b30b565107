/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/base/io.h"
#include "proto/base/p256.h"
#include "tests/support/suite.h"

/* Made with openssl genpkey, pkcs8, pkey -pubout, and dgst -sha256 -sign. */
static const char private_sec1[] = "-----BEGIN EC PRIVATE KEY-----\n"
                                   "MHcCAQEEIAtT+kybJy1VRMMrgSvq4svsFVVM9Hk6YzzMUH3OccuroAoGCCqGSM49\n"
                                   "AwEHoUQDQgAEuqT29dJZSnkoq9K+FOFUpJF1fgJ/0yyYLhNQFG+afcVrVg5wm0vu\n"
                                   "tfm6LKUTR7KplGIM2Gl0V3mXKiJGKWCidA==\n"
                                   "-----END EC PRIVATE KEY-----\n";
static const char private_pkcs8[] = "-----BEGIN PRIVATE KEY-----\n"
                                    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgC1P6TJsnLVVEwyuB\n"
                                    "K+riy+wVVUz0eTpjPMxQfc5xy6uhRANCAAS6pPb10llKeSir0r4U4VSkkXV+An/T\n"
                                    "LJguE1AUb5p9xWtWDnCbS+61+bospRNHsqmUYgzYaXRXeZcqIkYpYKJ0\n"
                                    "-----END PRIVATE KEY-----\n";
static const char public_pem[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEuqT29dJZSnkoq9K+FOFUpJF1fgJ/\n"
                                 "0yyYLhNQFG+afcVrVg5wm0vutfm6LKUTR7KplGIM2Gl0V3mXKiJGKWCidA==\n"
                                 "-----END PUBLIC KEY-----\n";
static const char encrypted[] = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh/hBsRbm+NxQICCAAw\n"
                                "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEH6Bw0UJZrVlWmf+wKAGwFYEgZBS\n"
                                "ZDcuH/YYrAD4tQAHBmZgeCKK0me90nJf0XWTE4dSQVlMyaJYASf3c6y4bzSlUOtW\n"
                                "CEf3UTW/h/O2/GyY/b6KpPV1ckRHihg1yM0kBN3+uJAyTBMhA3xZ8uyrfQPB1V/h\n"
                                "rMfqzi6Hevb4mjJberU3h0iEZo4mfg+WV96H/3pjqbj3XfKWC6CuPJ/dT5g4MpY=\n"
                                "-----END ENCRYPTED PRIVATE KEY-----\n";
static const char other_curve[] = "-----BEGIN EC PRIVATE KEY-----\n"
                                  "MHQCAQEEINaYBRneJkjMUMq0CUEGfNS8oyfhg8VkHWVTALSpVd0OoAcGBSuBBAAK\n"
                                  "oUQDQgAEhTga886wY9wTU6T6/KN7P0NhjDMh6RMgXVSL1cSmAbPIfzFiybcKebnM\n"
                                  "++yZz2uu8ND5h4M5BhKy/Hs79l7iTQ==\n"
                                  "-----END EC PRIVATE KEY-----\n";
static const char other_curve_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                         "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEhTga886wY9wTU6T6/KN7P0NhjDMh6RMg\n"
                                         "XVSL1cSmAbPIfzFiybcKebnM++yZz2uu8ND5h4M5BhKy/Hs79l7iTQ==\n"
                                         "-----END PUBLIC KEY-----\n";
static const char larger_curve_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                          "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE2p0hLPxAPZ7gl4ASqajYvag2ncX7hcVy\n"
                                          "UeVGzEQ13FN2LVLVkA8wCUBU1yegLTpRscLkD+3jFPyNnmS3/iB//CsB3vsvJ7vI\n"
                                          "PZdK0qKib9U86MBjoUcKEfDReDEQk2Yl\n"
                                          "-----END PUBLIC KEY-----\n";
static const char rsa_public[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuJg335nqmQknIjAziRC6\n"
                                 "TzzdNS/XbO8S5Ew5b8sovbF9ZcdsvgxKEDie2y5/89jO/DwSn8q4PeLgV6TZm+J4\n"
                                 "NXB9nd1WfLJL3RLaLraj6dQUwO11WWIi9341aZ18byXgDgj2LWyYwe9wuy3YQbz2\n"
                                 "rZFg7b8u66ysMERC/jY0/QLaUNK9ObpHOKsVkj15RlOxouKcdDNF9DvcGV4EZJYk\n"
                                 "xlSBLvaFt+KNgNlQIQhapPF0rdQZyRpCse+kj9y9koxBsPqKIVOUKWiddt0AMsrK\n"
                                 "bfEcGojOD0FxVeyW93PSQXXzdqcVLg0wRgZzfIUSGZK6TP9rPX9aAQ3hTBg0LFZb\n"
                                 "aQIDAQAB\n"
                                 "-----END PUBLIC KEY-----\n";
static const char fingerprint[] = "bd0ba12ca512c7115bd7cc1d2005000163d9e110486e23c52d6e600e039b6b40";
static const char message[] = "what was signed";
static const uint8_t signature[] = {0x30, 0x46, 0x02, 0x21, 0x00, 0x9f, 0xed, 0x15, 0x19, 0x47, 0x63, 0xb0, 0x71, 0xb6,
        0x54, 0xb9, 0x62, 0x9b, 0x84, 0xf4, 0x62, 0xa7, 0x65, 0xd6, 0xd3, 0x62, 0xa5, 0x0c, 0x60, 0x1e, 0x7b, 0xbc,
        0x75, 0x92, 0x88, 0xdf, 0x88, 0x02, 0x21, 0x00, 0xd2, 0xf1, 0x6a, 0xa9, 0xc1, 0x37, 0xbd, 0x85, 0x59, 0x6d,
        0x7c, 0x67, 0x79, 0x33, 0xf1, 0xd9, 0x06, 0x6e, 0x66, 0x19, 0x35, 0xf4, 0xde, 0x8b, 0xfe, 0xb7, 0x61, 0xf0,
        0x87, 0x8e, 0xdb, 0xac};

#define TEXT(array) (array), sizeof(array) - 1

/* FIPS 180-4's examples. */
static void test_digests_are_sha256(void)
{
        uint8_t digest[SHA256_BYTES], again[SHA256_BYTES];
        char text[SHA256_TEXT_BYTES];

        CU_ASSERT_FATAL(sha256_bytes("abc", 3, digest) == 0);
        sha256_text(digest, text);
        CU_ASSERT_STRING_EQUAL(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        CU_ASSERT_FATAL(sha256_parse(text, again) == 0);
        CU_ASSERT(memcmp(digest, again, sizeof(digest)) == 0);
        CU_ASSERT_FATAL(sha256_parts((const struct iovec[]){{"a", 1}, {NULL, 0}, {"bc", 2}}, 3, again) == 0);
        CU_ASSERT(memcmp(digest, again, sizeof(digest)) == 0);
        CU_ASSERT_FATAL(sha256_bytes(NULL, 0, digest) == 0);
        sha256_text(digest, text);
        CU_ASSERT_STRING_EQUAL(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void test_digits_are_lower_case_hex(void)
{
        uint8_t digest[SHA256_BYTES];
        char text[SHA256_TEXT_BYTES];

        for (const char *bad = "Ag /:`@"; *bad; bad++) {
                memset(text, 'a', sizeof(text));
                text[sizeof(text) - 1] = '\0';
                text[63] = *bad;
                CU_ASSERT(sha256_parse(text, digest) == -EINVAL);
        }
        text[62] = '\0'; /* is not read over */
        CU_ASSERT(sha256_parse(text, digest) == -EINVAL);
}

static void test_a_file_is_hashed_and_copied(void)
{
        _cleanup_close_ int from = memfd_create("from", MFD_CLOEXEC);
        _cleanup_close_ int to = memfd_create("to", MFD_CLOEXEC);
        static uint8_t bytes[200000];
        static uint8_t copied[sizeof(bytes) + 1];
        uint8_t whole[SHA256_BYTES], digest[SHA256_BYTES];
        uint64_t n = 0;

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)(i * 7 + i / 256);
        CU_ASSERT_FATAL(io_write_full(from, bytes, sizeof(bytes)) == 0); /* the offset is at the end, and stays there */
        CU_ASSERT_FATAL(sha256_bytes(bytes, sizeof(bytes), whole) == 0);
        CU_ASSERT_FATAL(sha256_file(from, sizeof(bytes), to, digest, &n) == 0);
        CU_ASSERT(n == sizeof(bytes) && memcmp(whole, digest, sizeof(digest)) == 0);
        CU_ASSERT(pread(to, copied, sizeof(copied), 0) == sizeof(bytes) && memcmp(copied, bytes, sizeof(bytes)) == 0);
        CU_ASSERT(lseek(from, 0, SEEK_CUR) == sizeof(bytes));
        CU_ASSERT(sha256_file(from, sizeof(bytes) - 1, -1, digest, &n) == -EFBIG);
        CU_ASSERT(n == sizeof(bytes));
}

static void test_openssl_keys_and_signatures_are_understood(void)
{
        const char *const privates[] = {private_sec1, private_pkcs8};
        _cleanup_(p256_freep) struct p256_key *public = NULL;
        uint8_t digest[SHA256_BYTES];
        char text[SHA256_TEXT_BYTES];

        CU_ASSERT_FATAL(p256_read_public(TEXT(public_pem), &public) == 0);
        p256_fingerprint(public, digest);
        sha256_text(digest, text);
        CU_ASSERT_STRING_EQUAL(text, fingerprint);
        CU_ASSERT(p256_verify(public, TEXT(message), signature, sizeof(signature)) == 0);
        for (size_t i = 0; i < 2; i++) {
                _cleanup_(p256_freep) struct p256_key *key = NULL;
                uint8_t own[P256_SIGNATURE_MAX_BYTES];
                size_t n = 0;

                CU_ASSERT_FATAL(p256_read_private(privates[i], strlen(privates[i]), &key) == 0);
                p256_fingerprint(key, digest);
                sha256_text(digest, text);
                CU_ASSERT_STRING_EQUAL(text, fingerprint);
                CU_ASSERT_FATAL(p256_sign(key, TEXT(message), own, &n) == 0);
                CU_ASSERT(p256_verify(public, TEXT(message), own, n) == 0);
        }
}

static void test_what_was_altered_is_not_signed(void)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        _cleanup_(p256_freep) struct p256_key *other = NULL;
        uint8_t altered[sizeof(signature) + 1] = {0};

        CU_ASSERT_FATAL(p256_read_public(TEXT(public_pem), &key) == 0 && p256_make(&other) == 0);
        CU_ASSERT(p256_verify(other, TEXT(message), signature, sizeof(signature)) == P256_E_NO);
        CU_ASSERT(p256_verify(key, message, sizeof(message) - 2, signature, sizeof(signature)) == P256_E_NO);
        CU_ASSERT(p256_verify(key, NULL, 0, signature, sizeof(signature)) == P256_E_NO);
        CU_ASSERT(p256_verify(key, TEXT(message), signature, 0) == P256_E_NO);
        CU_ASSERT(p256_verify(key, TEXT(message), signature, sizeof(signature) - 1) == P256_E_NO);
        memcpy(altered, signature, sizeof(signature));
        CU_ASSERT(p256_verify(key, TEXT(message), altered, sizeof(signature) + 1) == P256_E_NO);
        for (size_t i = 0; i < sizeof(signature); i++) {
                altered[i] ^= 1;
                CU_ASSERT(p256_verify(key, TEXT(message), altered, sizeof(signature)) == P256_E_NO);
                altered[i] ^= 1;
        }
}

static void test_other_keys_are_refused(void)
{
        struct p256_key *key = NULL;

        CU_ASSERT(p256_read_private(TEXT(other_curve), &key) == -EBADMSG);
        CU_ASSERT(p256_read_private(TEXT(encrypted), &key) == -EBADMSG);
        CU_ASSERT(p256_read_private(TEXT(public_pem), &key) == -EBADMSG);
        CU_ASSERT(p256_read_private("", 0, &key) == -EBADMSG);
        CU_ASSERT(p256_read_public(TEXT(other_curve_public), &key) == -EBADMSG);
        CU_ASSERT(p256_read_public(TEXT(larger_curve_public), &key) == -EBADMSG);
        CU_ASSERT(p256_read_public(TEXT(rsa_public), &key) == -EBADMSG);
        CU_ASSERT(p256_read_public(TEXT(private_pkcs8), &key) == -EBADMSG);
        CU_ASSERT(p256_read_public("", 0, &key) == -EBADMSG);
        CU_ASSERT_PTR_NULL(key);
}

static void test_a_made_key_is_written_and_read_again(void)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        _cleanup_(p256_freep) struct p256_key *private = NULL;
        _cleanup_(p256_freep) struct p256_key *public = NULL;
        uint8_t own[P256_SIGNATURE_MAX_BYTES], digest[SHA256_BYTES], again[SHA256_BYTES];
        char text[P256_PEM_MAX_BYTES];
        size_t n = 0;

        CU_ASSERT_FATAL(p256_make(&key) == 0);
        CU_ASSERT_FATAL(p256_write_private(key, text) == 0 && p256_read_private(text, strlen(text), &private) == 0);
        CU_ASSERT_FATAL(p256_write_public(key, text) == 0 && p256_read_public(text, strlen(text), &public) == 0);
        CU_ASSERT(strstr(text, "BEGIN PUBLIC KEY") != NULL);
        p256_fingerprint(key, digest);
        p256_fingerprint(private, again);
        CU_ASSERT(memcmp(digest, again, sizeof(digest)) == 0);
        p256_fingerprint(public, again);
        CU_ASSERT(memcmp(digest, again, sizeof(digest)) == 0);
        CU_ASSERT_FATAL(p256_sign(private, TEXT(message), own, &n) == 0);
        CU_ASSERT(p256_verify(public, TEXT(message), own, n) == 0);
        CU_ASSERT(p256_sign(public, TEXT(message), own, &n) == -EIO);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"digests are SHA-256", test_digests_are_sha256},
                {"digits are lower-case hex", test_digits_are_lower_case_hex},
                {"a file is hashed and copied", test_a_file_is_hashed_and_copied},
                {"OpenSSL's keys and signatures are understood", test_openssl_keys_and_signatures_are_understood},
                {"what was altered is not signed", test_what_was_altered_is_not_signed},
                {"other keys are refused", test_other_keys_are_refused},
                {"a made key is written and read again", test_a_made_key_is_written_and_read_again},
                CU_TEST_INFO_NULL,
        };

        return suite_run("crypto", tests);
}
