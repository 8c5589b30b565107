/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
#include "tools/wbctl/target.h"

struct kill_options {
        struct target_options target;
        uint64_t connect_ms;
        const char *signal;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct kill_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct kill_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"signal", 's', OPTION_STRING, offsetof(struct kill_options, signal), "NAME",
                "to the command's process group: TERM, USR1, ... or a number"},
};

static const struct option_table table = {
        .usage = "wbctl kill " TARGET_USAGE " ID",
        .summary = "Ends an exec with all that it started, at once; or sends its command a signal.",
        .example = "wbctl kill --vm demo --signal TERM x7-1c9a03fe",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* TERM, SIGTERM or 15. 0 or -EINVAL. */
static int parse_signal(const char *text, uint32_t *ret)
{
        uint64_t number;

        if (parse_u64(text, SIGRTMAX, &number) == 0) {
                *ret = (uint32_t)number;
                return number ? 0 : -EINVAL;
        }
        if (strncasecmp(text, "SIG", 3) == 0)
                text += 3;
        for (int i = 1; i < NSIG; i++) {
                const char *name = sigabbrev_np(i);

                if (name && strcasecmp(name, text) == 0) {
                        *ret = (uint32_t)i;
                        return 0;
                }
        }
        return -EINVAL;
}

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct kill_options *o = userdata;
        Wb__ExecKill m = WB__EXEC_KILL__INIT;
        Wb__ToAgent order = WB__TO_AGENT__INIT;

        (void)args_n;
        if (o->signal && parse_signal(o->signal, &m.signal) < 0)
                return options_usage_error(&table, "--signal wants a signal's name, not '%s'", o->signal);
        m.id = args[0];
        order.body_case = WB__TO_AGENT__BODY_EXEC_KILL;
        order.exec_kill = &m;
        return agent_call_tell(target, o->connect_ms, &order);
}

int command_kill(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table,
                .target_offset = offsetof(struct kill_options, target),
                .args_least = 1,
                .args_most = 1,
                .args_wanted = "one ID is needed",
                .run = run,
        };
        struct kill_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};

        return guest_command_run(&command, argc, argv, &options);
}
