/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define KEY_NAME    "audit.key"
#define PUBLIC_NAME "audit.pub"

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

static int make(int dir_fd, struct p256_key **ret)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        char pem[P256_PEM_MAX_BYTES];
        int r = p256_make(&key);

        if (r == 0)
                r = p256_write_private(key, pem);
        if (r == 0)
                r = audit_state_write(dir_fd, KEY_NAME, 0600, pem);
        explicit_bzero(pem, sizeof(pem));
        if (r < 0)
                return log_errno(r, "cannot make the audit log's key in state_dir");
        log_info("a key for the audit log was made; auditors need its public part, " PUBLIC_NAME);
        *ret = STEAL(key);
        return 0;
}

static int load(int fd, struct p256_key **ret)
{
        struct stat st;
        char *pem = NULL;
        size_t n;
        int r;

        if (fstat(fd, &st) < 0)
                return log_errno(-errno, "state_dir's " KEY_NAME);
        if (st.st_uid != geteuid() || st.st_mode & 077)
                return log_errno(-EPERM, "state_dir's " KEY_NAME " is another's, or open to others");
        r = io_read_fd(fd, P256_PEM_MAX_BYTES - 1, &pem, &n);
        if (r < 0)
                return log_errno(r, "cannot read state_dir's " KEY_NAME);
        r = p256_read_private(pem, n, ret);
        explicit_bzero(pem, n);
        free(pem);
        return r < 0 ? log_errno(r, "state_dir's " KEY_NAME " is no private key of P-256") : 0;
}

static int publish(int dir_fd, const struct p256_key *key)
{
        _cleanup_free_ char *there = NULL;
        char pem[P256_PEM_MAX_BYTES];
        _cleanup_close_ int fd = openat(dir_fd, PUBLIC_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        int r = p256_write_public(key, pem);

        if (r == 0 && fd >= 0 && io_read_fd(fd, sizeof(pem), &there, NULL) == 0 && strcmp(there, pem) == 0)
                return 0;
        if (r == 0)
                r = audit_state_write(dir_fd, PUBLIC_NAME, 0644, pem);
        return r < 0 ? log_errno(r, "cannot write state_dir's " PUBLIC_NAME) : 0;
}

int audit_key_open(int state_dir_fd, struct p256_key **ret)
{
        _cleanup_close_ int fd = openat(state_dir_fd, KEY_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        int r;

        if (fd < 0 && errno != ENOENT)
                return log_errno(-errno, "cannot open state_dir's " KEY_NAME);
        r = fd < 0 ? make(state_dir_fd, &key) : load(fd, &key);
        if (r == 0)
                r = publish(state_dir_fd, key);
        if (r == 0)
                *ret = STEAL(key);
        return r;
}
