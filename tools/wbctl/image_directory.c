/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

int image_directory_open(const char *path, int *ret_fd)
{
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int image_directory_open_file(int dir_fd, const char *name, int *ret_fd)
{
        /* O_NONBLOCK: opening a FIFO waits for nobody. */
        _cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;

        if (fd < 0) /* a link; a socket */
                return errno == ELOOP || errno == ENXIO ? IMAGE_DIRECTORY_E_IRREGULAR : -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return IMAGE_DIRECTORY_E_IRREGULAR;
        *ret_fd = steal_fd(&fd);
        return 0;
}

int image_directory_read(int dir_fd, const char *name, size_t max_bytes, char **ret_text, size_t *ret_n)
{
        _cleanup_close_ int fd = -1;
        int r = image_directory_open_file(dir_fd, name, &fd);

        return r != 0 ? r : io_read_fd(fd, max_bytes, ret_text, ret_n);
}

int image_directory_hash(int dir_fd, const char *name, uint64_t most_bytes, int copy_fd,
        uint8_t ret_digest[SHA256_BYTES], uint64_t *ret_bytes)
{
        _cleanup_close_ int fd = -1;
        int r = image_directory_open_file(dir_fd, name, &fd);

        return r != 0 ? r : sha256_file(fd, most_bytes, copy_fd, ret_digest, ret_bytes);
}

static bool is_own(const char *name)
{
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, IMAGE_MANIFEST_FILE) == 0 ||
               strcmp(name, IMAGE_MANIFEST_SIGNATURE) == 0;
}

int image_directory_list(int dir_fd, int (*each)(void *userdata, const char *name), void *userdata)
{
        /* Another description: whoever lists again begins at the beginning. */
        _cleanup_close_ int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry = NULL;
        int r = 0;

        if (!dir)
                return -errno;
        (void)steal_fd(&fd);
        while (r == 0 && (errno = 0, entry = readdir(dir)))
                if (!is_own(entry->d_name))
                        r = each(userdata, entry->d_name);
        if (r == 0 && !entry && errno)
                r = -errno;
        (void)closedir(dir);
        return r;
}
