/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_file.h"

#include <errno.h>
#include <string.h>

#include "broker/policy_load.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

int policy_file_load(const char *path, struct policy **ret, struct yaml_error *ret_error)
{
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r = io_read_file(path, YAML_MAX_BYTES, &text, &n);

        if (r == -ENOMEM)
                return r;
        if (r == -EFBIG)
                return yaml_error_set(ret_error, path, "the file is too large: more than %u bytes", YAML_MAX_BYTES);
        if (r < 0)
                return yaml_error_set(ret_error, path, "%s", strerror(-r));
        return policy_load(path, text, n, ret, ret_error);
}
