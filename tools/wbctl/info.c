/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "proto/base/options.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
#include "tools/wbctl/limits.h"
#include "tools/wbctl/statistics.h"
#include "tools/wbctl/target.h"

struct info_options {
        struct target_options target;
        uint64_t timeout_ms;
        bool json;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct info_options, target),
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct info_options, timeout_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"json", 0, OPTION_FLAG, offsetof(struct info_options, json), NULL, "one JSON object"},
};

static const struct option_table table = {
        .usage = "wbctl info " TARGET_USAGE,
        .summary = "Shows what a guest's agent is, what its kernel has, and its last activation step by step.",
        .example = "wbctl info --vm demo",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static void print_table(const Wb__Info *info)
{
        printf("version     %s\n", info->version);
        printf("state       %s\n", info->state);
        printf("generation  %" PRIu64 "\n", info->generation);
        printf("runs as     %s\n", info->pid1 ? "PID 1" : "a service");
        printf("uptime      %.1f s\n", (double)info->uptime_ns / 1e9);
        printf("commands    %u running\n", info->execs_running);
        for (size_t i = 0; i < info->n_facts; i++)
                printf("%-19s %s\n", info->facts[i]->name, info->facts[i]->value);
        if (info->memory_limits) {
                printf("\nmemory:\n");
                limits_memory_print(info->memory_limits);
        }
        if (info->statistics)
                statistics_print(info->statistics);
        if (info->n_last_activation)
                printf("\nlast activation:\n");
        for (size_t i = 0; i < info->n_last_activation; i++)
                agent_call_print_step(info->last_activation[i]);
}

static void print_json(const Wb__Info *info)
{
        json_t *facts = json_object(), *steps = json_array(), *root;

        for (size_t i = 0; i < info->n_facts; i++)
                (void)json_object_set_new(facts, info->facts[i]->name, json_string(info->facts[i]->value));
        for (size_t i = 0; i < info->n_last_activation; i++)
                (void)json_array_append_new(steps, agent_call_step_json(info->last_activation[i]));
        root = json_pack("{s:s, s:s, s:I, s:b, s:I, s:I, s:o, s:o}", "version", info->version, "state", info->state,
                "generation", (json_int_t)info->generation, "pid1", (int)info->pid1, "uptime_ns",
                (json_int_t)info->uptime_ns, "execs_running", (json_int_t)info->execs_running, "facts", facts,
                "last_activation", steps);
        if (info->memory_limits)
                (void)json_object_set_new(root, "memory", limits_memory_json(info->memory_limits));
        if (info->statistics)
                (void)json_object_set_new(root, "statistics", statistics_json(info->statistics));
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(root);
}

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct info_options *options = userdata;
        Wb__InfoRequest request = WB__INFO_REQUEST__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        (void)args, (void)args_n;
        question.body_case = WB__TO_AGENT__BODY_INFO;
        question.info = &request;
        r = agent_call_ask(target, options->timeout_ms, &question, WB__FROM_AGENT__BODY_INFO, &answer);
        if (r != 0)
                return r;
        if (options->json)
                print_json(answer->info);
        else
                print_table(answer->info);
        codec_free_from_agent(answer);
        return 0;
}

int command_info(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table, .target_offset = offsetof(struct info_options, target), .run = run};
        struct info_options options = {.timeout_ms = AGENT_CALL_TIMEOUT_MS};

        return guest_command_run(&command, argc, argv, &options);
}
