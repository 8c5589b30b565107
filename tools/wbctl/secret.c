/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "proto/base/wipe.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/secret_broker.h"
#include "tools/wbctl/secret_file.h"
#include "tools/wbctl/target.h"

struct secret_options {
        struct target_options target;
        uint64_t timeout_ms;
        uint64_t ttl_ms;
        bool json;
};

#define COMMON_SPECS                                                                                                   \
        TARGET_SPECS(struct secret_options, target),                                                                   \
        {                                                                                                              \
                "timeout", 0, OPTION_DURATION_MS, offsetof(struct secret_options, timeout_ms), "DURATION",             \
                        "how long the guest may take to answer (5s); --vm: the broker gives it 10s"                    \
        }

static const struct option_spec put_specs[] = {
        COMMON_SPECS,
        {"ttl", 0, OPTION_DURATION_MS, offsetof(struct secret_options, ttl_ms), "DURATION",
                "after which it is wiped (guest: at the next quiesce; --vm: with the VM's registration)"},
};
static const struct option_spec rm_specs[] = {COMMON_SPECS};
static const struct option_spec ls_specs[] = {
        COMMON_SPECS,
        {"json", 0, OPTION_FLAG, offsetof(struct secret_options, json), NULL, "a JSON array"},
};

static const struct option_table put_table = {
        .usage = "wbctl secret put " TARGET_USAGE " NAME=FILE [--ttl DURATION]",
        .summary =
                "Gives a VM a secret, or another value for one; - is stdin. With --vm the broker keeps it until it is\n"
                "removed, its time is up, the VM is removed or the broker ends; gives it to the guest at each\n"
                "activation, and now if it is active; and audits both. Otherwise an activated guest alone has it.",
        .example = "wbctl secret put --vm demo TOKEN=token.txt --ttl 10m",
        .specs = put_specs,
        .specs_n = sizeof(put_specs) / sizeof(put_specs[0]),
        .intermixed = true,
};
static const struct option_table rm_table = {
        .usage = "wbctl secret rm " TARGET_USAGE " NAME...",
        .summary = "Removes secrets: wiped at the broker (--vm) and in the guest, and their files taken away from "
                   "running commands.",
        .example = "wbctl secret rm --vm demo TOKEN",
        .specs = rm_specs,
        .specs_n = sizeof(rm_specs) / sizeof(rm_specs[0]),
        .intermixed = true,
};
static const struct option_table ls_table = {
        .usage = "wbctl secret ls " TARGET_USAGE,
        .summary = "The names of the secrets, how long they have, and with --vm whether the guest holds them; never "
                   "their values.",
        .example = "wbctl secret ls --vm demo",
        .specs = ls_specs,
        .specs_n = sizeof(ls_specs) / sizeof(ls_specs[0]),
        .intermixed = true,
};

/* ---- put */

static int send_put(const struct secret_options *o, const struct target *target, Wb__Secret *secret)
{
        Wb__SecretPut put = WB__SECRET_PUT__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;

        put.secret = secret;
        question.body_case = WB__TO_AGENT__BODY_SECRET_PUT;
        question.secret_put = &put;
        return agent_call_tell(target, o->timeout_ms, &question);
}

static int put_into_guest(const struct secret_options *o, const struct target *target, char *name, const char *path)
{
        Wb__Secret secret = WB__SECRET__INIT;
        _cleanup_(wipe_freep) char *value = NULL;
        size_t n;
        int r = secret_file_read("secret put", path, &value, &n);

        if (r != 0)
                return r;
        secret.name = name;
        secret.value = (ProtobufCBinaryData){n, (uint8_t *)value};
        secret.ttl_ms = o->ttl_ms;
        return send_put(o, target, &secret);
}

static int put(const struct secret_options *o, const struct target *target, char *const *rest, size_t rest_n)
{
        const char *equals = rest_n == 1 ? strchr(rest[0], '=') : NULL;
        _cleanup_free_ char *name = NULL;

        if (!equals || !equals[1] || !agent_call_is_secret_name(rest[0], (size_t)(equals - rest[0])))
                return options_usage_error(&put_table, "wanted is one NAME=FILE, NAME of letters, digits and _");
        name = strndup(rest[0], (size_t)(equals - rest[0]));
        if (!name)
                return EXIT_FAILED;
        return o->target.vm ? secret_broker_put(&o->target, name, equals + 1, o->ttl_ms)
                            : put_into_guest(o, target, name, equals + 1);
}

/* ---- rm */

static int revoke_one(const struct secret_options *o, const struct target *target, char *name)
{
        Wb__SecretRevoke m = WB__SECRET_REVOKE__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;

        m.name = name;
        question.body_case = WB__TO_AGENT__BODY_SECRET_REVOKE;
        question.secret_revoke = &m;
        return agent_call_tell(target, o->timeout_ms, &question);
}

/* All of them, also when one is not there. */
static int rm(const struct secret_options *o, const struct target *target, char *const *rest, size_t rest_n)
{
        int status = 0;

        if (rest_n == 0)
                return options_usage_error(&rm_table, "which secret?");
        for (size_t i = 0; i < rest_n; i++)
                if (!agent_call_is_secret_name(rest[i], strlen(rest[i])))
                        return options_usage_error(&rm_table, "'%s' is no secret's name", rest[i]);
        for (size_t i = 0; i < rest_n; i++) {
                int r = o->target.vm ? secret_broker_rm(&o->target, rest[i]) : revoke_one(o, target, rest[i]);

                if (r != 0)
                        status = r;
        }
        return status;
}

/* ---- ls */

static void print_json(const Wb__SecretEntries *list)
{
        json_t *root = json_array();

        for (size_t i = 0; i < list->n_entries; i++) {
                const Wb__SecretEntry *e = list->entries[i];
                json_t *left = e->left_ms ? json_integer((json_int_t)e->left_ms) : json_null();

                (void)json_array_append_new(
                        root, json_pack("{s:s, s:o, s:s}", "name", e->name, "left_ms", left, "memory", list->memory));
        }
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(root);
}

static void print_table(const Wb__SecretEntries *list)
{
        for (size_t i = 0; i < list->n_entries; i++) {
                const Wb__SecretEntry *e = list->entries[i];

                if (e->left_ms)
                        printf("%-32s %.1f s left\n", e->name, (double)e->left_ms / 1e3);
                else
                        printf("%-32s until the next quiesce\n", e->name);
        }
}

static int ls(const struct secret_options *o, const struct target *target, char *const *rest, size_t rest_n)
{
        Wb__SecretList request = WB__SECRET_LIST__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        if (rest_n)
                return options_usage_error(&ls_table, "'%s' is one argument too many", rest[0]);
        if (o->target.vm)
                return secret_broker_ls(&o->target, o->json);
        question.body_case = WB__TO_AGENT__BODY_SECRET_LIST;
        question.secret_list = &request;
        r = agent_call_ask(target, o->timeout_ms, &question, WB__FROM_AGENT__BODY_SECRET_ENTRIES, &answer);
        if (r != 0)
                return r;
        if (o->json)
                print_json(answer->secret_entries);
        else
                print_table(answer->secret_entries);
        codec_free_from_agent(answer);
        return 0;
}

/* ---- the table */

static const struct {
        const char *name;
        const struct option_table *table;
        int (*run)(const struct secret_options *o, const struct target *target, char *const *rest, size_t rest_n);
} actions[] = {
        {"put", &put_table, put},
        {"rm", &rm_table, rm},
        {"ls", &ls_table, ls},
};

/* A VM's own transport is the broker's to know. */
static int find_target(const struct option_table *table, struct secret_options *o, struct target *ret)
{
        const struct target_options *t = &o->target;

        if (t->vm && !t->uds && !t->unix_dir && !t->cid)
                return o->timeout_ms ? options_usage_error(table, "--timeout is not for --vm") : 0;
        if (!o->timeout_ms)
                o->timeout_ms = AGENT_CALL_TIMEOUT_MS;
        return target_resolve(table, t, ret);
}

static int run(int argc, char **argv)
{
        struct secret_options options = {0};
        struct target target = {0};
        size_t rest_n, i = 0;
        char **rest;
        int r;

        secret_file_wipe_json();
        while (strcmp(argv[0], actions[i].name) != 0)
                i++;
        r = options_parse(actions[i].table, argc, argv, &options, &rest, &rest_n);
        if (r == 0)
                r = find_target(actions[i].table, &options, &target);
        if (r == 0)
                r = actions[i].run(&options, &target, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        target_done(&target);
        return r < 0 ? EXIT_FAILED : r;
}

static const struct command commands[] = {
        {"ls", "the names of the secrets, and how long they have; never their values", run},
        {"put", "give a VM a secret, or another value for one", run},
        {"rm", "remove secrets", run},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl secret", NULL, commands};

int command_secret(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
