/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tree/name.h"

#include <errno.h>
#include <string.h>

static bool component_is_good(const char *p, size_t n)
{
        if (n == 0 || n > TREE_NAME_MAX)
                return false;
        return !(p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.')));
}

bool tree_name_is_good(const char *path, size_t n)
{
        size_t depth = 0;

        if (n == 0 || n > TREE_PATH_MAX || memchr(path, 0, n))
                return false;
        for (const char *end = path + n;; path++) {
                const char *slash = memchr(path, '/', (size_t)(end - path));

                if (++depth > TREE_DEPTH_MAX || !component_is_good(path, (size_t)((slash ? slash : end) - path)))
                        return false;
                if (!slash)
                        return true;
                path = slash;
        }
}

static const struct {
        int error;
        const char *reason;
} reasons[] = {
        {-ENOENT, "not_found"},
        {-EEXIST, "exists"},
        {-ENOTDIR, "not_a_directory"},
        {-EISDIR, "is_a_directory"},
        {-ENOTEMPTY, "not_empty"},
        {-EACCES, "permission"},
        {-EPERM, "permission"},
        {-EROFS, "read_only"},
        {-ENOSPC, "no_space"},
        {-EDQUOT, "no_space"},
        {-EFBIG, "too_large"},
        {-ENAMETOOLONG, "name_too_long"},
        {-ELOOP, "symlink"},
        {-EXDEV, "other_filesystem"},
        {-EBUSY, "busy"},
        {-ETXTBSY, "busy"},
        {-EINVAL, "invalid"},
        {-EOPNOTSUPP, "unsupported"},
        {-ENOSYS, "unsupported"},
        {-EIO, "io"},
};

const char *tree_error_reason(int error)
{
        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
                if (reasons[i].error == error)
                        return reasons[i].reason;
        return "failed";
}
