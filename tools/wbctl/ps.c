/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/options.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/target.h"

struct ps_options {
        struct target_options target;
        uint64_t connect_ms;
        bool json;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct ps_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, offsetof(struct ps_options, connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"json", 0, OPTION_FLAG, offsetof(struct ps_options, json), NULL, "an array of objects"},
};

static const struct option_table table = {
        .usage = "wbctl ps " TARGET_USAGE,
        .summary =
                "Lists the execs of a guest: those that run, those that left something behind, and the last that ended.",
        .example = "wbctl ps --vm demo",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* Command lines are bytes; what is not printable is shown as \xNN, so that nothing of a guest's reaches the terminal.
 */
static void print_word(const ProtobufCBinaryData *word)
{
        for (size_t i = 0; i < word->len; i++) {
                uint8_t b = word->data[i];

                if (b == '\\')
                        fputs("\\\\", stdout);
                else if (b >= 0x20 && b < 0x7f)
                        putchar(b);
                else
                        printf("\\x%02x", b);
        }
}

static void print_table(const Wb__ExecEntries *entries)
{
        printf("%-16s %8s %-10s %4s  %s\n", "ID", "PID", "STATE", "EXIT", "COMMAND");
        for (size_t i = 0; i < entries->n_entries; i++) {
                const Wb__ExecEntry *e = entries->entries[i];

                printf("%-16s %8d %-10s ", e->id, e->pid, e->state);
                if (e->exit_set)
                        printf("%4d ", e->exit);
                else
                        printf("%4s ", "-");
                for (size_t k = 0; k < e->n_cmd; k++) {
                        putchar(' ');
                        print_word(&e->cmd[k]);
                }
                putchar('\n');
        }
}

/* A JSON string holds text: what is no UTF-8 is written byte by byte, as Latin-1. */
static json_t *word_json(const ProtobufCBinaryData *word)
{
        json_t *text = json_stringn((const char *)word->data, word->len);
        char *latin1;
        size_t n = 0;

        if (text)
                return text;
        latin1 = malloc(2 * word->len + 1);
        if (!latin1)
                return NULL;
        for (size_t i = 0; i < word->len; i++) {
                uint8_t b = word->data[i];

                if (b >= 0x80) {
                        latin1[n++] = (char)(0xc0 | b >> 6);
                        b = 0x80 | (b & 0x3f);
                }
                latin1[n++] = (char)b;
        }
        text = json_stringn(latin1, n);
        free(latin1);
        return text;
}

static void print_json(const Wb__ExecEntries *entries)
{
        json_t *root = json_array();

        for (size_t i = 0; i < entries->n_entries; i++) {
                const Wb__ExecEntry *e = entries->entries[i];
                json_t *cmd = json_array();

                for (size_t k = 0; k < e->n_cmd; k++)
                        (void)json_array_append_new(cmd, word_json(&e->cmd[k]));
                (void)json_array_append_new(
                        root, json_pack("{s:s, s:i, s:o, s:s, s:o}", "id", e->id, "pid", e->pid, "cmd", cmd, "state",
                                      e->state, "exit", e->exit_set ? json_integer(e->exit) : json_null()));
        }
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(root);
}

static int list(const struct ps_options *o)
{
        Wb__ExecList m = WB__EXEC_LIST__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        struct target target = {0};
        Wb__FromAgent *answer;
        int r = target_resolve(&table, &o->target, &target);

        question.body_case = WB__TO_AGENT__BODY_EXEC_LIST;
        question.exec_list = &m;
        if (r == 0)
                r = agent_call_ask(&target, o->connect_ms, &question, WB__FROM_AGENT__BODY_EXEC_ENTRIES, &answer);
        if (r == 0) {
                if (o->json)
                        print_json(answer->exec_entries);
                else
                        print_table(answer->exec_entries);
                codec_free_from_agent(answer);
        }
        target_done(&target);
        return r;
}

int command_ps(int argc, char **argv)
{
        struct ps_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n)
                r = options_usage_error(&table, "'%s' is one argument too many", rest[0]);
        if (r == 0)
                r = list(&options);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        return r < 0 ? EXIT_FAILED : r;
}
