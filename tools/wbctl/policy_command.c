/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_command.h"

#include <errno.h>
#include <stdio.h>

#include "proto/base/log.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_file.h"

int policy_command_print(json_t *answer)
{
        int r = answer && json_dumpf(answer, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;

        json_decref(answer);
        if (r)
                return 0;
        log_errno(errno ? -errno : -EIO, "the answer cannot be written");
        return EXIT_FAILED;
}

int policy_command_load(const char *file, bool json, struct policy **ret)
{
        struct yaml_error e = {0};
        int r = policy_file_load(file, ret, &e);

        if (r == 0)
                return 0;
        if (r != YAML_E_INVALID) {
                log_errno(r, "%s: cannot be read", file);
                return EXIT_FAILED;
        }
        yaml_error_print(&e);
        if (json)
                r = policy_command_print(json_pack("{s:b, s:s, s:i, s:i, s:s}", "valid", 0, "file", e.file, "line",
                        (int)e.line, "column", (int)e.column, "message", e.message));
        yaml_error_done(&e);
        return r == EXIT_FAILED ? EXIT_FAILED : EXIT_USAGE;
}
