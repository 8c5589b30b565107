/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/ca_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/ca.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/wipe.h"

#define NAME      "ca.pem"
#define NAME_NEXT NAME ".next"

/* What others can read or write is no key. */
static int read_text(int dir, char **ret_text, size_t *ret_n)
{
        _cleanup_close_ int fd = openat(dir, NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (st.st_mode & 077))
                return -EPERM;
        return io_read_fd(fd, CA_FILE_MAX_BYTES, ret_text, ret_n);
}

/* A file that is not what it should be is nobody's to replace in silence: guests may trust what it once was. */
static int check_text(const char *text, size_t n)
{
        struct ca *ca = NULL;
        int r = ca_load(text, n, &ca);

        ca_unref(ca);
        return r;
}

static int write_text(int dir, const char *text, size_t n)
{
        _cleanup_close_ int fd = -1;
        int r;

        if (unlinkat(dir, NAME_NEXT, 0) < 0 && errno != ENOENT)
                return -errno;
        fd = openat(dir, NAME_NEXT, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = io_write_full(fd, text, n);
        if (r == 0 && (fsync(fd) < 0 || renameat(dir, NAME_NEXT, dir, NAME) < 0 || fsync(dir) < 0))
                r = -errno;
        return r;
}

static int make_text(int dir, char **ret_text, size_t *ret_n)
{
        _cleanup_(wipe_freep) char *text = NULL;
        size_t n = 0;
        int r = ca_make(&text, &n);

        if (r == 0)
                r = write_text(dir, text, n);
        if (r < 0)
                return r;
        *ret_text = STEAL(text);
        *ret_n = n;
        return 0;
}

int ca_file_get(const char *state_dir, bool anew, char **ret_text, size_t *ret_n)
{
        _cleanup_close_ int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(wipe_freep) char *text = NULL;
        size_t n = 0;
        int r = dir < 0 ? -errno : anew ? -ENOENT : read_text(dir, &text, &n);

        if (r == 0)
                r = check_text(text, n);
        else if (r == -ENOENT && dir >= 0)
                r = make_text(dir, &text, &n);
        if (r < 0)
                return log_errno(r, "the interception CA %s/" NAME, state_dir);
        *ret_text = STEAL(text);
        *ret_n = n;
        return 0;
}
