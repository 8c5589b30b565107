/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "proto/base/options.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
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

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct shutdown_options *options = userdata;
        Wb__Shutdown shutdown = WB__SHUTDOWN__INIT;
        Wb__ToAgent order = WB__TO_AGENT__INIT;

        (void)args, (void)args_n;
        shutdown.kind = options->reboot ? WB__SHUTDOWN__KIND__REBOOT : WB__SHUTDOWN__KIND__POWER_OFF;
        order.body_case = WB__TO_AGENT__BODY_SHUTDOWN;
        order.shutdown = &shutdown;
        return agent_call_tell(target, options->timeout_ms, &order);
}

int command_shutdown(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table, .target_offset = offsetof(struct shutdown_options, target), .run = run};
        struct shutdown_options options = {.timeout_ms = AGENT_CALL_TIMEOUT_MS};

        return guest_command_run(&command, argc, argv, &options);
}
