/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tools/wbctl/image_check.h"

#define BUILDER_ARGUMENTS_MAX 64
#define BUILDER_ANSWER_BYTES  (PATH_MAX + 1u)

static int own_directory(char **ret)
{
        char path[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

        if (n < 0)
                return -errno;
        path[n] = '\0';
        *strrchr(path, '/') = '\0';
        *ret = strdup(path);
        return *ret ? 0 : -ENOMEM;
}

int image_sibling(const char *name, char **ret_path)
{
        _cleanup_free_ char *directory = NULL;
        _cleanup_free_ char *path = NULL;
        int r = own_directory(&directory);

        if (r < 0)
                return r;
        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        if (access(path, X_OK) < 0) {
                free(path);
                path = strdup(name);
                if (!path)
                        return -ENOMEM;
        }
        *ret_path = STEAL(path);
        return 0;
}

/* Installed, the builder is in ../share/wb of wbctl's directory; in a build tree, in the sources. */
static int find_builder(char **ret)
{
        _cleanup_free_ char *directory = NULL;
        _cleanup_free_ char *path = NULL;
        int r = own_directory(&directory);

        if (r < 0)
                return r;
        if (asprintf(&path, "%s/../share/wb/microvm/build", directory) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        if (access(path, X_OK) < 0) {
                free(path);
                path = strdup(WB_SOURCE_DIR "/images/microvm/build");
                if (!path)
                        return -ENOMEM;
        }
        *ret = STEAL(path);
        return 0;
}

static int open_part(const char *directory, const char *name, int *ret_fd)
{
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd < 0) {
                int r = -errno;

                fprintf(stderr, "wbctl: image: %s: %s\n", path, strerror(errno));
                return r;
        }
        *ret_fd = fd;
        return 0;
}

static int read_cmdline(const char *directory, int fd, char **ret)
{
        size_t n;
        int r = io_read_fd(fd, IMAGE_CMDLINE_MAX_BYTES, ret, &n);

        if (r < 0) {
                fprintf(stderr, "wbctl: image: %s/cmdline: %s\n", directory, strerror(-r));
                return r;
        }
        (*ret)[strcspn(*ret, "\n")] = '\0';
        return 0;
}

/* Takes the descriptors of kernel and initrd when it succeeds. */
static int assemble(const char *directory, int cmdline_fd, int *kernel_fd, int *initrd_fd, struct image *ret)
{
        _cleanup_free_ char *cmdline = NULL;
        _cleanup_free_ char *path = strdup(directory);
        int r = path ? read_cmdline(directory, cmdline_fd, &cmdline) : -ENOMEM;

        if (r < 0)
                return r;
        *ret = (struct image){
                .directory = STEAL(path),
                .cmdline = STEAL(cmdline),
                .kernel_fd = steal_fd(kernel_fd),
                .initrd_fd = steal_fd(initrd_fd),
        };
        return 0;
}

int image_open(const char *directory, struct image *ret)
{
        _cleanup_close_ int cmdline_fd = -1;
        _cleanup_close_ int kernel_fd = -1;
        _cleanup_close_ int initrd_fd = -1;
        int r;

        if ((r = open_part(directory, "cmdline", &cmdline_fd)) < 0 ||
                (r = open_part(directory, "kernel", &kernel_fd)) < 0 ||
                (r = open_part(directory, "initrd", &initrd_fd)) < 0)
                return r;
        return assemble(directory, cmdline_fd, &kernel_fd, &initrd_fd, ret);
}

int image_open_verified(const char *directory, const struct image_keys *keys, struct image *ret)
{
        struct image_copies copies;
        struct image_check check;
        int r = image_check(directory, keys, &copies, &check);

        if (r < 0) {
                fprintf(stderr, "wbctl: image: %s: %s\n", directory, strerror(-r));
                return r;
        }
        if (check.result != IMAGE_CHECK_WHOLE) {
                image_check_print(&check, directory, "wbctl: image: ", stderr);
                return -EKEYREJECTED;
        }
        r = assemble(directory, copies.fds[IMAGE_COPY_CMDLINE], &copies.fds[IMAGE_COPY_KERNEL],
                &copies.fds[IMAGE_COPY_INITRD], ret);
        image_copies_close(&copies);
        return r;
}

void image_close(struct image *image)
{
        close_fd(image->kernel_fd);
        close_fd(image->initrd_fd);
        free(image->cmdline);
        free(image->directory);
        *image = IMAGE_NONE;
}

/* The builder's stdout as one line; 0, or -EPROTO when it failed (it has said why). */
static int run_builder(const char *const *argv, char **ret_line)
{
        _cleanup_free_ char *text = NULL;
        size_t n = 0;
        int status = 0;
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;

        pid_t pid = fork();

        if (pid == 0) {
                if (dup2(fds[1], STDOUT_FILENO) >= 0)
                        execv(argv[0], (char *const *)(uintptr_t)argv); /* execv() changes nothing of it */
                fprintf(stderr, "wbctl: image: cannot start %s: %s\n", argv[0], strerror(errno));
                _exit(127);
        }
        close_fd(fds[1]);

        int r = pid < 0 ? -errno : io_read_fd(fds[0], BUILDER_ANSWER_BYTES, &text, &n);

        close_fd(fds[0]);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (r < 0)
                return r;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return -EPROTO;
        text[strcspn(text, "\n")] = '\0';
        *ret_line = STEAL(text);
        return 0;
}

int image_build(const char *const *arguments, char **ret_directory)
{
        _cleanup_free_ char *builder = NULL;
        _cleanup_free_ char *agent = NULL;
        const char *argv[BUILDER_ARGUMENTS_MAX];
        size_t n = 0;
        int r;

        if ((r = find_builder(&builder)) < 0 || (r = image_sibling("wbagent", &agent)) < 0)
                return r;
        argv[n++] = builder;
        argv[n++] = "--agent";
        argv[n++] = agent;
        for (size_t i = 0; arguments && arguments[i]; i++) {
                if (n == BUILDER_ARGUMENTS_MAX - 1)
                        return -E2BIG;
                argv[n++] = arguments[i];
        }
        argv[n] = NULL;
        r = run_builder(argv, ret_directory);
        if (r < 0 && r != -EPROTO)
                fprintf(stderr, "wbctl: image: %s: %s\n", builder, strerror(-r));
        return r;
}

int image_cache(char **ret_directory)
{
        const char *cache = getenv("XDG_CACHE_HOME");
        const char *home = getenv("HOME");
        int n;

        if (cache && *cache)
                n = asprintf(ret_directory, "%s/wb/microvm", cache);
        else if (geteuid() == 0 || !home)
                n = asprintf(ret_directory, "/var/cache/wb/microvm");
        else
                n = asprintf(ret_directory, "%s/.cache/wb/microvm", home);
        return n < 0 ? -ENOMEM : 0;
}
