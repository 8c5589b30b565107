/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "proto/base/options.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/session.h"
#include "tools/wbctl/target.h"

struct attach_options {
        struct target_options target;
        uint64_t connect_ms;
        uint64_t offset;
        uint64_t stderr_offset;
        const char *result;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct attach_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct attach_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"offset", 0, OPTION_U64, offsetof(struct attach_options, offset), "N", "show stdout from its byte N on"},
        {"stderr-offset", 0, OPTION_U64, offsetof(struct attach_options, stderr_offset), "N",
                "show stderr from its byte N on"},
        {"result", 0, OPTION_STRING, offsetof(struct attach_options, result), "FILE", "write how it ended, as JSON"},
};

static const struct option_table table = {
        .usage = "wbctl attach " TARGET_USAGE " ID",
        .summary =
                "Shows what an exec has written and what it writes, and ends with its status. Ctrl-C ends the looking only.",
        .example = "wbctl attach --vm demo --offset 4096 x7-1c9a03fe",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static int attach(const struct attach_options *o, const char *id)
{
        const struct session_options session = {.result_path = o->result, .answer_ms = o->connect_ms};
        Wb__ExecAttach m = WB__EXEC_ATTACH__INIT;
        struct target target = {0};
        int fd, r;

        (void)session_prepare();
        m.id = (char *)(uintptr_t)id;
        m.stdout_offset = o->offset;
        m.stderr_offset = o->stderr_offset;
        r = target_resolve(&table, &o->target, &target);
        if (r == 0)
                r = agent_call_dial(&target, o->connect_ms, &fd);
        if (r == 0)
                r = session_attach(fd, &m, &session);
        target_done(&target);
        return r;
}

int command_attach(int argc, char **argv)
{
        struct attach_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n != 1)
                r = options_usage_error(&table, "one ID is needed");
        if (r == 0)
                r = attach(&options, rest[0]);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        return r < 0 ? EXIT_FAILED : r;
}
