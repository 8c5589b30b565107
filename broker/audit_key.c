/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mbedtls/ecp.h>
#include <mbedtls/pk.h>
#include <mbedtls/version.h>

#include "broker/audit_checkpoint.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define KEY_NAME      "audit.key"
#define PUBLIC_NAME   "audit.pub"
#define PEM_MAX_BYTES 4096u

struct audit_key {
        mbedtls_pk_context pk;
        uint8_t public_der[AUDIT_KEY_MAX_BYTES];
        size_t public_n;
};

/* mbedTLS's f_rng, over the kernel's. */
static int fill_random(void *unused, unsigned char *to, size_t n)
{
        (void)unused;
        while (n) {
                ssize_t got = getrandom(to, n, 0);

                if (got < 0 && errno != EINTR)
                        return MBEDTLS_ERR_ECP_RANDOM_FAILED;
                if (got > 0) {
                        to += got;
                        n -= (size_t)got;
                }
        }
        return 0;
}

int audit_state_write(int dir_fd, const char *name, mode_t mode, const char *text)
{
        _cleanup_close_ int fd = -1;
        char temporary[64];
        int r;

        (void)snprintf(temporary, sizeof(temporary), ".%s.new", name);
        (void)unlinkat(dir_fd, temporary, 0);
        fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd < 0)
                return -errno;
        r = fchmod(fd, mode) < 0 ? -errno : io_write_full(fd, text, strlen(text));
        if (r == 0 && (fdatasync(fd) < 0 || renameat(dir_fd, temporary, dir_fd, name) < 0 || fsync(dir_fd) < 0))
                r = -errno;
        if (r < 0)
                (void)unlinkat(dir_fd, temporary, 0);
        return r;
}

static int make(int dir_fd, mbedtls_pk_context *pk)
{
        unsigned char pem[PEM_MAX_BYTES] = {0};
        int r = -EIO;

        if (mbedtls_pk_setup(pk, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)) == 0 &&
                mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*pk), fill_random, NULL) == 0 &&
                mbedtls_pk_write_key_pem(pk, pem, sizeof(pem)) == 0)
                r = audit_state_write(dir_fd, KEY_NAME, 0600, (const char *)pem);
        explicit_bzero(pem, sizeof(pem));
        if (r == 0)
                log_info("a key for the audit log was made; auditors need its public part, " PUBLIC_NAME);
        return r < 0 ? log_errno(r, "cannot make the audit log's key in state_dir") : 0;
}

static int parse(mbedtls_pk_context *pk, const char *pem, size_t n)
{
#if MBEDTLS_VERSION_MAJOR >= 3
        return mbedtls_pk_parse_key(pk, (const unsigned char *)pem, n + 1, NULL, 0, fill_random, NULL);
#else
        return mbedtls_pk_parse_key(pk, (const unsigned char *)pem, n + 1, NULL, 0);
#endif
}

static int load(int fd, mbedtls_pk_context *pk)
{
        struct stat st;
        char *pem = NULL;
        size_t n;
        int r;

        if (fstat(fd, &st) < 0)
                return log_errno(-errno, "state_dir's " KEY_NAME);
        if (st.st_uid != geteuid() || st.st_mode & 077)
                return log_errno(-EPERM, "state_dir's " KEY_NAME " is another's, or open to others");
        r = io_read_fd(fd, PEM_MAX_BYTES, &pem, &n);
        if (r < 0)
                return log_errno(r, "cannot read state_dir's " KEY_NAME);
        r = parse(pk, pem, n);
        explicit_bzero(pem, n);
        free(pem);
        return r != 0 ? log_errno(-EBADMSG, "state_dir's " KEY_NAME " is no key") : 0;
}

/* Derives the public part and puts it beside the key. */
static int publish(int dir_fd, struct audit_key *key)
{
        unsigned char pem[PEM_MAX_BYTES] = {0}, der[PEM_MAX_BYTES];
        _cleanup_free_ char *there = NULL;
        _cleanup_close_ int fd = -1;
        int n = mbedtls_pk_write_pubkey_der(&key->pk, der, sizeof(der)), r;

        /* It writes from the end of the room. */
        if (n <= 0 || !audit_key_is_p256(der + sizeof(der) - n, (size_t)n) ||
                mbedtls_pk_write_pubkey_pem(&key->pk, pem, sizeof(pem)) != 0)
                return log_errno(-EBADMSG, "state_dir's " KEY_NAME " is no key of P-256");
        memcpy(key->public_der, der + sizeof(der) - n, (size_t)n);
        key->public_n = (size_t)n;
        fd = openat(dir_fd, PUBLIC_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && io_read_fd(fd, PEM_MAX_BYTES, &there, NULL) == 0 && strcmp(there, (const char *)pem) == 0)
                return 0;
        r = audit_state_write(dir_fd, PUBLIC_NAME, 0644, (const char *)pem);
        return r < 0 ? log_errno(r, "cannot write state_dir's " PUBLIC_NAME) : 0;
}

int audit_key_open(int state_dir_fd, struct audit_key **ret)
{
        _cleanup_close_ int fd = openat(state_dir_fd, KEY_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct audit_key *key;
        int r;

        if (fd < 0 && errno != ENOENT)
                return log_errno(-errno, "cannot open state_dir's " KEY_NAME);
        key = calloc(1, sizeof(*key));
        if (!key)
                return log_oom();
        mbedtls_pk_init(&key->pk);
        r = fd < 0 ? make(state_dir_fd, &key->pk) : load(fd, &key->pk);
        if (r == 0)
                r = publish(state_dir_fd, key);
        if (r < 0) {
                audit_key_free(key);
                return r;
        }
        *ret = key;
        return 0;
}

void audit_key_free(struct audit_key *key)
{
        if (!key)
                return;
        mbedtls_pk_free(&key->pk); /* wipes it */
        free(key);
}

const uint8_t *audit_key_public(const struct audit_key *key, size_t *ret_n)
{
        *ret_n = key->public_n;
        return key->public_der;
}

int audit_key_sign(struct audit_key *key, const uint8_t sha256[32], uint8_t *ret_signature, uint32_t *ret_n)
{
        uint8_t signature[MBEDTLS_PK_SIGNATURE_MAX_SIZE];
        size_t n = 0;
#if MBEDTLS_VERSION_MAJOR >= 3
        int r = mbedtls_pk_sign(
                &key->pk, MBEDTLS_MD_SHA256, sha256, 32, signature, sizeof(signature), &n, fill_random, NULL);
#else
        int r = mbedtls_pk_sign(&key->pk, MBEDTLS_MD_SHA256, sha256, 32, signature, &n, fill_random, NULL);
#endif

        if (r != 0 || n > AUDIT_SIGNATURE_MAX_BYTES)
                return -EIO;
        memcpy(ret_signature, signature, n);
        *ret_n = (uint32_t)n;
        return 0;
}
