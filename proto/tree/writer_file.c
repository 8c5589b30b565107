/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tree/writer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define NAME_TRIES 16

void writer_temporary_name(char ret[WRITER_TEMPORARY_BYTES])
{
        uint64_t random = 0;

        (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
        (void)snprintf(ret, WRITER_TEMPORARY_BYTES, ".wb-%016" PRIx64, random);
}

/* Whoever names /dev/null as where a file is to go does not mean that there shall be no /dev/null any more. */
static bool is_device(int dir, const char *name)
{
        struct stat st;

        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode));
}

/* Without a name where the filesystem can: then not even a crash leaves anything. */
int writer_file_open(struct writer_file *f)
{
        if (is_device(f->dir, f->name))
                return -EEXIST;
        f->position = 0;
        f->temporary[0] = '\0';
        f->fd = openat(f->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        for (int i = 0; f->fd < 0 && i < NAME_TRIES; i++) {
                writer_temporary_name(f->temporary);
                f->fd = openat(f->dir, f->temporary, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
                if (f->fd < 0 && errno != EEXIST)
                        break;
        }
        return f->fd < 0 ? -errno : 0;
}

int writer_file_write(struct writer_file *f, uint64_t offset, const uint8_t *data, size_t n)
{
        uint64_t end;

        if (offset < f->position || __builtin_add_overflow(offset, n, &end) || end > INT64_MAX)
                return -ERANGE;
        if (!f->open_ended && end > f->size)
                return -ERANGE;
        f->position = end;
        while (n) {
                ssize_t put = pwrite(f->fd, data, n, (off_t)offset);

                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0)
                        return -errno;
                data += put;
                n -= (size_t)put;
                offset += (uint64_t)put;
        }
        return 0;
}

/* The owner first: a change of it takes set-user-ID off. */
int writer_set_attributes(int fd, const struct writer_attributes *a)
{
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, a->mtime};

        if ((a->uid != (uid_t)-1 || a->gid != (gid_t)-1) && fchown(fd, a->uid, a->gid) < 0)
                return -errno;
        if (fchmod(fd, a->mode) < 0 || futimens(fd, times) < 0)
                return -errno;
        return 0;
}

/* Gives what has no name one; by the descriptor itself, or by /proc where that is not allowed. */
static int link_as(const struct writer_file *f, const char *name)
{
        char path[32];

        if (linkat(f->fd, "", f->dir, name, AT_EMPTY_PATH) == 0)
                return 0;
        if (errno != ENOENT && errno != EPERM)
                return -errno;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
        return linkat(AT_FDCWD, path, f->dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int put_into_place(struct writer_file *f)
{
        int r = -EEXIST;

        if (!f->temporary[0]) {
                r = link_as(f, f->name);
                if (r != -EEXIST)
                        return r;
        }
        for (int i = 0; !f->temporary[0] && i < NAME_TRIES; i++) {
                char name[WRITER_TEMPORARY_BYTES];

                writer_temporary_name(name);
                r = link_as(f, name);
                if (r == 0)
                        memcpy(f->temporary, name, sizeof(name)); /* writer_file_abandon() knows it from here */
                else if (r != -EEXIST)
                        return r;
        }
        if (!f->temporary[0])
                return r;
        if (renameat(f->dir, f->temporary, f->dir, f->name) < 0)
                return -errno;
        f->temporary[0] = '\0';
        return 0;
}

static int synchronize_directory(int dir)
{
        _cleanup_close_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int writer_file_finish(struct writer_file *f, bool synchronize)
{
        uint64_t size = f->open_ended ? f->position : f->size;
        int r = 0;

        if (ftruncate(f->fd, (off_t)size) < 0)
                return -errno;
        r = writer_set_attributes(f->fd, &f->attributes);
        if (r == 0 && synchronize && fsync(f->fd) < 0)
                r = -errno;
        if (r == 0)
                r = put_into_place(f);
        if (r == 0 && synchronize)
                r = synchronize_directory(f->dir);
        if (r == 0)
                f->fd = close_fd(f->fd);
        return r;
}

void writer_file_abandon(struct writer_file *f)
{
        if (f->fd >= 0 && f->temporary[0])
                (void)unlinkat(f->dir, f->temporary, 0);
        f->temporary[0] = '\0';
        f->fd = close_fd(f->fd);
}
