/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/evidence_source.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define FILE_MAX_BYTES (4u << 20) /* mappings, some 40000 lines; anything else is far smaller */

int evidence_read_file(int dir_fd, const char *name, char **ret_text)
{
        _cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
        size_t n;

        return fd < 0 ? -errno : io_read_fd(fd, FILE_MAX_BYTES, ret_text, &n);
}

bool evidence_take_number(const char **text, int base, uint64_t *ret)
{
        const char *p = *text;
        char *end;

        while (*p == ' ' || *p == '\t')
                p++;
        /* strtoull() would take a sign and "0x" too. */
        if (!isxdigit((unsigned char)*p))
                return false;
        errno = 0;
        *ret = strtoull(p, &end, base);
        if (end == p || errno)
                return false;
        *text = end;
        return true;
}
