/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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

struct resize_options {
        struct target_options target;
        uint64_t connect_ms;
        struct option_strings tmpfs;
        const char *ceiling;
        bool json;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct resize_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct resize_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"tmpfs", 0, OPTION_STRINGS, offsetof(struct resize_options, tmpfs), "PATH=SIZE|PERCENT%",
                "a mounted tmpfs; a percentage follows memory from now on (repeatable)"},
        {"ceiling", 0, OPTION_STRING, offsetof(struct resize_options, ceiling), "SIZE|auto|none",
                "memory of all commands together; auto: all but what the kernel and the agent need, following memory"},
        {"json", 0, OPTION_FLAG, offsetof(struct resize_options, json), NULL, "one JSON object"},
};

static const struct option_table table = {
        .usage = "wbctl resize " TARGET_USAGE " [OPTION]...",
        .summary =
                "Changes what is backed by a guest's memory, after the agent has looked how much there is now, and prints what is in force.",
        .example = "wbctl resize --vm demo --tmpfs /tmp=75%",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* ---- what is asked for */

/* The request, and what it points at. */
struct request {
        Wb__MemoryResize message;
        Wb__MemoryFilesystemSize items[WB_MEMORY_FILESYSTEMS_MAX], *pointers[WB_MEMORY_FILESYSTEMS_MAX];
};

/* "50%" or "64M". 0 or a negative errno. */
static int parse_share(const char *text, Wb__MemoryFilesystemSize *ret)
{
        size_t n = strlen(text);
        char digits[8];
        uint64_t percent;
        int r;

        if (n == 0 || text[n - 1] != '%') {
                r = parse_size(text, &ret->size_bytes);
                return r == 0 && ret->size_bytes == 0 ? -ERANGE : r;
        }
        if (n > sizeof(digits))
                return -ERANGE;
        memcpy(digits, text, n - 1);
        digits[n - 1] = '\0';
        r = parse_u64(digits, 100, &percent);
        if (r < 0 || percent == 0)
                return r < 0 ? r : -ERANGE;
        ret->percent = (uint32_t)percent;
        return 0;
}

static int take_filesystem(const char *text, Wb__MemoryFilesystemSize *ret)
{
        const char *equals = strrchr(text, '=');

        wb__memory_filesystem_size__init(ret);
        if (!equals || *text != '/' || (size_t)(equals - text) > WB_MEMORY_PATH_MAX || parse_share(equals + 1, ret) < 0)
                return options_usage_error(&table, "--tmpfs wants /PATH=SIZE or /PATH=PERCENT%%, not '%s'", text);
        ret->path = (ProtobufCBinaryData){.len = (size_t)(equals - text), .data = (uint8_t *)(uintptr_t)text};
        return 0;
}

static int take_ceiling(const char *text, Wb__MemoryResize *m)
{
        if (!text)
                return 0;
        if (strcmp(text, "auto") == 0)
                m->ceiling = WB__MEMORY_RESIZE__CEILING__CEILING_FOLLOWS;
        else if (strcmp(text, "none") == 0)
                m->ceiling = WB__MEMORY_RESIZE__CEILING__CEILING_NONE;
        else if (parse_size(text, &m->ceiling_bytes) == 0 && m->ceiling_bytes)
                m->ceiling = WB__MEMORY_RESIZE__CEILING__CEILING_FIXED;
        else
                return options_usage_error(&table, "--ceiling wants a size, auto or none, not '%s'", text);
        return 0;
}

static int take_request(const struct resize_options *o, struct request *q)
{
        wb__memory_resize__init(&q->message);
        if (o->tmpfs.n > WB_MEMORY_FILESYSTEMS_MAX)
                return options_usage_error(&table, "at most %u --tmpfs", WB_MEMORY_FILESYSTEMS_MAX);
        for (size_t i = 0; i < o->tmpfs.n; i++) {
                int r = take_filesystem(o->tmpfs.items[i], &q->items[i]);

                if (r != 0)
                        return r;
                q->pointers[i] = &q->items[i];
        }
        q->message.filesystems = q->pointers;
        q->message.n_filesystems = o->tmpfs.n;
        return take_ceiling(o->ceiling, &q->message);
}

/* ---- asking */

static void print(const Wb__MemoryLimits *limits, bool json)
{
        json_t *object;

        if (!json) {
                limits_memory_print(limits);
                return;
        }
        object = limits_memory_json(limits);
        (void)json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(object);
}

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct resize_options *o = userdata;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        struct request q;
        int r = take_request(o, &q);

        (void)args, (void)args_n;
        if (r != 0)
                return r;
        question.body_case = WB__TO_AGENT__BODY_MEMORY_RESIZE;
        question.memory_resize = &q.message;
        r = agent_call_ask(target, o->connect_ms, &question, WB__FROM_AGENT__BODY_MEMORY_LIMITS, &answer);
        if (r != 0)
                return r;
        print(answer->memory_limits, o->json);
        codec_free_from_agent(answer);
        return 0;
}

int command_resize(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table, .target_offset = offsetof(struct resize_options, target), .run = run};
        struct resize_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        int r = guest_command_run(&command, argc, argv, &options);

        option_strings_done(&options.tmpfs);
        return r;
}
