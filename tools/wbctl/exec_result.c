/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/exec_result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/clock.h"

static json_t *signal_of(const Wb__ExecResult *r)
{
        return r->signal ? json_integer(r->signal) : json_null();
}

static json_t *to_json(const struct exec_outcome *outcome)
{
        static const Wb__ExecResult none = WB__EXEC_RESULT__INIT;
        const Wb__ExecResult *r = outcome->result ? outcome->result : &none;

        return json_pack("{s:s, s:i, s:o, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I}", "id", r->id,
                "exit", outcome->exit_status, "signal", signal_of(r), "reason", outcome->reason, "detail",
                outcome->detail, "tree", r->tree, "truncated", (int)r->truncated, "oom_kills", (json_int_t)r->oom_kills,
                "stdout_bytes", (json_int_t)r->stdout_bytes, "stderr_bytes", (json_int_t)r->stderr_bytes, "duration_ms",
                (json_int_t)(r->duration_ns / NSEC_PER_MSEC), "core_dumped", (int)r->core_dumped, "user_ms",
                (json_int_t)(r->user_ns / NSEC_PER_MSEC), "system_ms", (json_int_t)(r->system_ns / NSEC_PER_MSEC),
                "peak_memory_bytes", (json_int_t)r->peak_memory_bytes);
}

int exec_result_write(const char *path, const struct exec_outcome *outcome)
{
        json_t *object = to_json(outcome);
        FILE *f = object ? fopen(path, "we") : NULL;
        int r = 0;

        if (!object)
                r = -ENOMEM;
        else if (!f || json_dumpf(object, f, JSON_INDENT(2)) < 0 || fputc('\n', f) == EOF)
                r = errno ? -errno : -EIO;
        if (f && fclose(f) != 0 && r == 0)
                r = -errno;
        if (r < 0)
                fprintf(stderr, "wbctl: %s: %s\n", path, strerror(-r));
        json_decref(object);
        return r;
}
