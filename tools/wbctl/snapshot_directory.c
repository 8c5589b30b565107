/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tools/wbctl/image_directory.h"
#include "tools/wbctl/snapshot_memory.h"

/* Errors of a part of it, or with name "" of the whole. */
static int failed(const char *path, const char *name, int error)
{
        fprintf(stderr, "wbctl: snapshot: %s%s%s: %s\n", path, *name ? "/" : "", name, strerror(-error));
        return error;
}

static int invalid(const char *path, const char *name, const char *reason)
{
        fprintf(stderr, "wbctl: snapshot: %s/%s: %s\n", path, name, reason);
        return -EINVAL;
}

/* ---- writing */

/* "a/b" for "a/b/c", "." for "c"; without the slashes behind it. */
static char *parent_of(const char *path)
{
        size_t n = strlen(path);

        while (n > 1 && path[n - 1] == '/')
                n--;
        while (n > 0 && path[n - 1] != '/')
                n--;
        return n > 0 ? strndup(path, n) : strdup(".");
}

int snapshot_directory_check(const char *path)
{
        _cleanup_free_ char *parent = parent_of(path);
        struct stat st;

        if (!parent)
                return failed(path, "", -ENOMEM);
        if (*path == '\0' || lstat(path, &st) == 0)
                return failed(path, "", *path ? -EEXIST : -ENOENT);
        if (errno != ENOENT || stat(parent, &st) < 0)
                return failed(path, "", -errno);
        if (!S_ISDIR(st.st_mode))
                return failed(path, "", -ENOTDIR);
        return access(parent, W_OK | X_OK) < 0 ? failed(path, "", -errno) : 0;
}

static int create_file(int dir_fd, const char *name, int *ret_fd)
{
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

static int write_memory(int dir_fd, const struct snapshot_machine *m, int memory_fd)
{
        _cleanup_close_ int fd = -1;
        int r = create_file(dir_fd, SNAPSHOT_MEMORY_FILE, &fd);

        if (r == 0)
                r = snapshot_memory_write(memory_fd, m->memory_bytes, fd);
        return r == 0 && fsync(fd) < 0 ? -errno : r;
}

static int write_state(int dir_fd, struct snapshot_machine *m, int state_fd)
{
        _cleanup_close_ int fd = -1;
        int r = create_file(dir_fd, SNAPSHOT_STATE_FILE, &fd);

        if (r == 0)
                r = sha256_file(state_fd, SNAPSHOT_STATE_MAX_BYTES, fd, m->state, &m->state_bytes);
        if (r == 0 && m->state_bytes == 0)
                r = -ENODATA;
        return r == 0 && fsync(fd) < 0 ? -errno : r;
}

static int write_machine(int dir_fd, const struct snapshot_machine *m)
{
        _cleanup_close_ int fd = -1;
        char text[SNAPSHOT_MACHINE_MAX_BYTES];
        size_t n;
        int r = snapshot_machine_format(m, text, &n);

        if (r == 0)
                r = create_file(dir_fd, SNAPSHOT_MACHINE_FILE, &fd);
        if (r == 0)
                r = io_write_full(fd, text, n);
        return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* Durable before it has its name, and the name afterwards. */
static int publish(const char *temporary, const char *path, int dir_fd)
{
        _cleanup_free_ char *parent = parent_of(path);
        _cleanup_close_ int parent_fd = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

        if (!parent)
                return -ENOMEM;
        if (parent_fd < 0 || fsync(dir_fd) < 0 || renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) < 0)
                return -errno;
        (void)fsync(parent_fd); /* it is there in any case; a crash may still take it */
        return 0;
}

static void discard(const char *temporary, int dir_fd)
{
        static const char *const names[] = {SNAPSHOT_MACHINE_FILE, SNAPSHOT_STATE_FILE, SNAPSHOT_MEMORY_FILE};

        for (size_t i = 0; dir_fd >= 0 && i < sizeof(names) / sizeof(names[0]); i++)
                (void)unlinkat(dir_fd, names[i], 0);
        (void)rmdir(temporary);
}

/* Beside the place it is for, so that a rename brings it there. mkdtemp() makes it of mode 0700. */
static int make_temporary(const char *path, char **ret)
{
        size_t n = strlen(path);
        char *name = NULL;

        while (n > 1 && path[n - 1] == '/')
                n--;
        if (asprintf(&name, "%.*s.XXXXXX", (int)n, path) < 0)
                return -ENOMEM;
        if (!mkdtemp(name)) {
                int r = -errno;

                free(name);
                return r;
        }
        *ret = name;
        return 0;
}

int snapshot_directory_write(const char *path, struct snapshot_machine *machine, int memory_fd, int state_fd)
{
        _cleanup_free_ char *temporary = NULL;
        _cleanup_close_ int dir_fd = -1;
        int r = make_temporary(path, &temporary);

        if (r < 0)
                return failed(path, "", r);
        dir_fd = open(temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = dir_fd < 0 ? -errno : 0;
        if (r == 0)
                r = write_memory(dir_fd, machine, memory_fd);
        if (r == 0)
                r = write_state(dir_fd, machine, state_fd);
        if (r == 0)
                r = write_machine(dir_fd, machine);
        if (r == 0)
                r = publish(temporary, path, dir_fd);
        if (r == 0)
                return 0;
        discard(temporary, dir_fd);
        return failed(path, "", r > 0 ? -EIO : r);
}

/* ---- reading */

static int open_file(const char *path, int dir_fd, const char *name, int *ret_fd)
{
        int r = image_directory_open_file(dir_fd, name, ret_fd);

        if (r == IMAGE_DIRECTORY_E_IRREGULAR)
                return invalid(path, name, "is not a regular file");
        return r < 0 ? failed(path, name, r) : 0;
}

static int read_machine(const char *path, int dir_fd, struct snapshot_machine *ret)
{
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int fd = -1;
        struct snapshot_machine_error error;
        size_t n;
        int r = open_file(path, dir_fd, SNAPSHOT_MACHINE_FILE, &fd);

        if (r < 0)
                return r;
        r = io_read_fd(fd, SNAPSHOT_MACHINE_MAX_BYTES, &text, &n);
        if (r == 0)
                r = snapshot_machine_parse(text, n, ret, &error);
        if (r < 0)
                return failed(path, SNAPSHOT_MACHINE_FILE, r);
        if (r == 0)
                return 0;
        fprintf(stderr, "wbctl: snapshot: %s/%s:%zu: the line %s\n", path, SNAPSHOT_MACHINE_FILE, error.line,
                error.reason);
        return -EINVAL;
}

/* A copy, so that nobody can alter what QEMU is to load once it is found unaltered. */
static int read_state(const char *path, int dir_fd, const struct snapshot_machine *m, int *ret_fd)
{
        _cleanup_close_ int copy = memfd_create("wb-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        _cleanup_close_ int fd = -1;
        uint8_t digest[SHA256_BYTES];
        uint64_t bytes = 0;
        int r = copy < 0 ? failed(path, SNAPSHOT_STATE_FILE, -errno)
                         : open_file(path, dir_fd, SNAPSHOT_STATE_FILE, &fd);

        if (r < 0)
                return r;
        r = sha256_file(fd, m->state_bytes, copy, digest, &bytes);
        if (r < 0 && r != -EFBIG)
                return failed(path, SNAPSHOT_STATE_FILE, r);
        if (r == -EFBIG || bytes != m->state_bytes || memcmp(digest, m->state, SHA256_BYTES) != 0)
                return invalid(path, SNAPSHOT_STATE_FILE, "is not the state that the machine file speaks of");
        if (lseek(copy, 0, SEEK_SET) < 0 ||
                fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return failed(path, SNAPSHOT_STATE_FILE, -errno);
        *ret_fd = steal_fd(&copy);
        return 0;
}

static int open_memory(const char *path, int dir_fd, const struct snapshot_machine *m, int *ret_fd)
{
        _cleanup_close_ int fd = -1;
        struct stat st;
        int r = open_file(path, dir_fd, SNAPSHOT_MEMORY_FILE, &fd);

        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0)
                return failed(path, SNAPSHOT_MEMORY_FILE, -errno);
        if ((uint64_t)st.st_size != m->memory_bytes)
                return invalid(path, SNAPSHOT_MEMORY_FILE, "is not as large as the machine's memory");
        *ret_fd = steal_fd(&fd);
        return 0;
}

int snapshot_directory_open(const char *path, struct snapshot *ret)
{
        struct snapshot s = SNAPSHOT_NONE;
        _cleanup_close_ int dir_fd = -1;
        int r = image_directory_open(path, &dir_fd);

        if (r < 0)
                return failed(path, "", r);
        if ((r = read_machine(path, dir_fd, &s.machine)) < 0 ||
                (r = read_state(path, dir_fd, &s.machine, &s.state_fd)) < 0 ||
                (r = open_memory(path, dir_fd, &s.machine, &s.memory_fd)) < 0) {
                snapshot_close(&s);
                return r;
        }
        *ret = s;
        return 0;
}

void snapshot_close(struct snapshot *s)
{
        s->state_fd = close_fd(s->state_fd);
        s->memory_fd = close_fd(s->memory_fd);
}
