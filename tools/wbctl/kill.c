/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
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

static int kill_exec(const struct kill_options *o, const char *id)
{
        Wb__ExecKill m = WB__EXEC_KILL__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        struct target target = {0};
        Wb__FromAgent *answer;
        int r;

        if (o->signal && parse_signal(o->signal, &m.signal) < 0)
                return options_usage_error(&table, "--signal wants a signal's name, not '%s'", o->signal);
        m.id = (char *)(uintptr_t)id;
        question.body_case = WB__TO_AGENT__BODY_EXEC_KILL;
        question.exec_kill = &m;
        r = target_resolve(&table, &o->target, &target);
        if (r == 0)
                r = agent_call_ask(&target, o->connect_ms, &question, WB__FROM_AGENT__BODY_OK, &answer);
        if (r == 0)
                codec_free_from_agent(answer);
        target_done(&target);
        return r;
}

int command_kill(int argc, char **argv)
{
        struct kill_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n != 1)
                r = options_usage_error(&table, "one ID is needed");
        if (r == 0)
                r = kill_exec(&options, rest[0]);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        return r < 0 ? EXIT_FAILED : r;
}
