/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "proto/base/options.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/target.h"

struct shutdown_options {
        struct target_options target;
        uint64_t timeout_ms;
        bool reboot;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct shutdown_options, target),
        {"reboot", 0, OPTION_FLAG, offsetof(struct shutdown_options, reboot), NULL, "start again instead of ending"},
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct shutdown_options, timeout_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
};

static const struct option_table table = {
        .usage = "wbctl shutdown " TARGET_USAGE " [--reboot]",
        .summary = "Ends a guest in order: its commands, its filesystems, the machine. It answers before it has ended.",
        .example = "wbctl shutdown --uds /run/vm/demo.vsock",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static int end_guest(const struct shutdown_options *options, const struct target *target)
{
        Wb__Shutdown shutdown = WB__SHUTDOWN__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        shutdown.kind = options->reboot ? WB__SHUTDOWN__KIND__REBOOT : WB__SHUTDOWN__KIND__POWER_OFF;
        question.body_case = WB__TO_AGENT__BODY_SHUTDOWN;
        question.shutdown = &shutdown;
        r = agent_call_ask(target, options->timeout_ms, &question, WB__FROM_AGENT__BODY_OK, &answer);
        if (r != 0)
                return r;
        codec_free_from_agent(answer);
        return 0;
}

int command_shutdown(int argc, char **argv)
{
        struct shutdown_options options = {.timeout_ms = AGENT_CALL_TIMEOUT_MS};
        struct target target = {0};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n)
                r = options_usage_error(&table, "'%s' is one argument too many", rest[0]);
        if (r == 0)
                r = target_resolve(&table, &options.target, &target);
        if (r == 0)
                r = end_guest(&options, &target);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        target_done(&target);
        return r < 0 ? EXIT_FAILED : r;
}
