/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <mbedtls/base64.h>

#include "proto/base/cleanup.h"
#include "proto/base/wipe.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"

/* One allocation of the largest size: a buffer that grows would leave copies behind. 0, -EFBIG, or a negative errno. */
static int read_bounded(int fd, char *to, size_t *ret_n)
{
        size_t n = 0;

        for (;;) {
                ssize_t got = read(fd, to + n, WB_SECRET_MAX_BYTES + 1 - n);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                n += (size_t)got;
                if (n > WB_SECRET_MAX_BYTES)
                        return -EFBIG;
                if (got == 0)
                        break;
        }
        *ret_n = n;
        return 0;
}

int secret_file_read(const char *what, const char *path, char **ret, size_t *ret_n)
{
        _cleanup_(wipe_freep) char *value = malloc(WB_SECRET_MAX_BYTES + 1);
        _cleanup_close_ int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                                        : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        int r;

        if (!value)
                return EXIT_FAILED;
        r = fd < 0 ? -errno : read_bounded(fd, value, ret_n);
        if (r == 0) {
                *ret = STEAL(value);
                return 0;
        }
        if (r == -EFBIG)
                fprintf(stderr, "wbctl: %s: %s: a secret is at most %u bytes\n", what, path, WB_SECRET_MAX_BYTES);
        else
                fprintf(stderr, "wbctl: %s: %s: %s\n", what, path, strerrordesc_np(-r));
        return EXIT_USAGE;
}

int secret_file_read_base64(const char *what, const char *path, char **ret_text)
{
        _cleanup_(wipe_freep) char *value = NULL;
        _cleanup_(wipe_freep) char *text = NULL;
        size_t n, room = 0;
        int r = secret_file_read(what, path, &value, &n);

        if (r != 0)
                return r;
        (void)mbedtls_base64_encode(NULL, 0, &room, (unsigned char *)value, n);
        text = calloc(1, room + 1);
        if (!text || mbedtls_base64_encode((unsigned char *)text, room + 1, &room, (unsigned char *)value, n) != 0)
                return EXIT_FAILED;
        *ret_text = STEAL(text);
        return 0;
}

void secret_file_wipe_json(void)
{
        json_set_alloc_funcs(malloc, wipe_free);
}
