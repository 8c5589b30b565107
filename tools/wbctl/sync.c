/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "proto/base/options.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
#include "tools/wbctl/target.h"

struct sync_options {
        struct target_options target;
        uint64_t timeout_ms;
        bool trim;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct sync_options, target),
        {"trim", 0, OPTION_FLAG, offsetof(struct sync_options, trim), NULL,
                "and tell the disks which blocks are free: a snapshot becomes smaller"},
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct sync_options, timeout_ms), "DURATION",
                "how long the guest may take (60s)"},
};

static const struct option_table table = {
        .usage = "wbctl sync " TARGET_USAGE " [--trim]",
        .summary = "Has a guest write to its disks what it holds in memory.",
        .example = "wbctl sync --vm demo --trim",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct sync_options *o = userdata;
        Wb__Sync m = WB__SYNC__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        (void)args, (void)args_n;
        m.trim = o->trim;
        question.body_case = WB__TO_AGENT__BODY_SYNC;
        question.sync = &m;
        r = agent_call_ask(target, o->timeout_ms, &question, WB__FROM_AGENT__BODY_FILE_DONE, &answer);
        if (r != 0)
                return r;
        if (o->trim)
                printf("%" PRIu64 " bytes trimmed\n", answer->file_done->bytes);
        codec_free_from_agent(answer);
        return 0;
}

int command_sync(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table, .target_offset = offsetof(struct sync_options, target), .run = run};
        struct sync_options options = {.timeout_ms = 60000};

        return guest_command_run(&command, argc, argv, &options);
}
