/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
#include "tools/wbctl/limits.h"
#include "tools/wbctl/target.h"

struct limit_options {
        struct target_options target;
        uint64_t connect_ms;
        const char *memory, *pids, *cpu, *io;
        bool json;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct limit_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct limit_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"memory", 0, OPTION_STRING, offsetof(struct limit_options, memory), "SIZE|none",
                "memory of the whole tree; what is used above it is killed at once"},
        {"pids", 0, OPTION_STRING, offsetof(struct limit_options, pids), "N|none", "processes of the whole tree"},
        {"cpu", 0, OPTION_STRING, offsetof(struct limit_options, cpu), "PERCENT|none", "of one core"},
        {"io", 0, OPTION_STRING, offsetof(struct limit_options, io), "SIZE|none",
                "a second, read and written each, of each disk"},
        {"json", 0, OPTION_FLAG, offsetof(struct limit_options, json), NULL, "one JSON object"},
};

static const struct option_table table = {
        .usage = "wbctl limit " TARGET_USAGE " ID [OPTION]...",
        .summary =
                "Changes the limits of an exec that runs, all that are given or none, and prints what is in force. none, or 0, lifts one.",
        .example = "wbctl limit --vm demo x7-1c9a03fe --memory 512M --cpu none",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* text NULL: not given. 0; or EXIT_USAGE, said. */
static int take(const char *name, const char *text, bool is_size, uint64_t most, bool *ret_set, uint64_t *ret)
{
        int r = 0;

        if (!text)
                return 0;
        *ret = 0;
        if (strcmp(text, "none") != 0)
                r = is_size ? parse_size(text, ret) : parse_u64(text, most, ret);
        if (r < 0)
                return options_usage_error(&table, "--%s wants a number or none, not '%s'", name, text);
        *ret_set = true;
        return 0;
}

static int take_limits(const struct limit_options *o, Wb__ExecLimit *m)
{
        bool set[4] = {false};
        uint64_t cpu_percent = 0;
        int r = take("memory", o->memory, true, 0, &set[0], &m->limits->memory_bytes);

        if (r == 0)
                r = take("pids", o->pids, false, UINT64_MAX, &set[1], &m->limits->pids);
        if (r == 0)
                r = take("cpu", o->cpu, false, WB_CPU_PERCENT_MAX, &set[2], &cpu_percent);
        if (r == 0)
                r = take("io", o->io, true, 0, &set[3], &m->limits->io_bps);
        m->limits->cpu_percent = (uint32_t)cpu_percent;
        m->memory_set = set[0];
        m->pids_set = set[1];
        m->cpu_set = set[2];
        m->io_set = set[3];
        return r;
}

static void print(const Wb__ExecLimits *limits, bool json)
{
        char text[LIMITS_TEXT_BYTES];
        json_t *object;

        if (!json) {
                limits_exec_text(limits, text);
                printf("%s\n", text);
                return;
        }
        object = limits_exec_json(limits);
        (void)json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(object);
}

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct limit_options *o = userdata;
        Wb__ExecLimits limits = WB__EXEC_LIMITS__INIT;
        Wb__ExecLimit m = WB__EXEC_LIMIT__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        (void)args_n;
        m.id = args[0];
        m.limits = &limits;
        r = take_limits(o, &m);
        if (r != 0)
                return r;
        question.body_case = WB__TO_AGENT__BODY_EXEC_LIMIT;
        question.exec_limit = &m;
        r = agent_call_ask(target, o->connect_ms, &question, WB__FROM_AGENT__BODY_EXEC_LIMITS, &answer);
        if (r != 0)
                return r;
        print(answer->exec_limits, o->json);
        codec_free_from_agent(answer);
        return 0;
}

int command_limit(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table,
                .target_offset = offsetof(struct limit_options, target),
                .args_least = 1,
                .args_most = 1,
                .args_wanted = "one ID is needed",
                .run = run,
        };
        struct limit_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};

        return guest_command_run(&command, argc, argv, &options);
}
