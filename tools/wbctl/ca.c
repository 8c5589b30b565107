/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"

struct ca_options {
        const char *socket;
        bool json;
};

static const struct option_spec specs[] = {
        {"socket", 0, OPTION_STRING, offsetof(struct ca_options, socket), "PATH",
                "the broker's control socket (WB_SOCKET)"},
        {"json", 0, OPTION_FLAG, offsetof(struct ca_options, json), NULL, "the broker's answer as JSON"},
};

static const char *text_of(const json_t *ca, const char *key)
{
        const char *text = json_string_value(json_object_get(ca, key));

        return text ? text : "-";
}

static void print_ca(const json_t *ca)
{
        printf("SHA-256     %s\n", text_of(ca, "sha256"));
        printf("valid from  %s\n", text_of(ca, "not_before"));
        printf("valid to    %s\n", text_of(ca, "not_after"));
        printf("intercepts  %s\n", json_is_true(json_object_get(ca, "intercepts"))
                                           ? "yes"
                                           : "no: by the broker's configuration or for want of it");
}

static void print_rotated(const json_t *ca)
{
        print_ca(ca);
        printf("VMs keep the CA that they have until they are activated again (wbctl vm resume).\n");
}

static void print_certificate(const json_t *ca)
{
        fputs(text_of(ca, "certificate"), stdout);
}

#define TABLE(name, what)                                                                                              \
        {                                                                                                              \
                .usage = "wbctl ca " name " [--json]", .summary = what, .example = "wbctl ca " name, .specs = specs,   \
                .specs_n = sizeof(specs) / sizeof(*specs)                                                              \
        }

static const struct subcommand {
        const char *name;
        const char *op;
        struct option_table table;
        void (*print)(const json_t *ca);
} subcommands[] = {
        {"show", "ca_show", TABLE("show", "Shows the CA by which the broker intercepts TLS."), print_ca},
        {"export", "ca_show",
                TABLE("export", "Prints the CA's certificate in PEM, for guests that are not activated by the broker."),
                print_certificate},
        {"rotate", "ca_rotate",
                TABLE("rotate",
                        "Makes a new CA. A VM has the one before until it is activated again, or without an agent until it "
                        "is added again or the broker starts anew."),
                print_rotated},
};
#define SUBCOMMANDS_N (sizeof(subcommands) / sizeof(*subcommands))

static const struct subcommand *find(const char *name)
{
        for (size_t i = 0; i < SUBCOMMANDS_N; i++)
                if (strcmp(name, subcommands[i].name) == 0)
                        return &subcommands[i];
        assert(!"a name of the table below");
        return NULL;
}

static int run(int argc, char **argv)
{
        const struct subcommand *s = find(argv[0]);
        struct ca_options o = {0};
        json_t *answer = NULL;
        size_t rest_n;
        char **rest;
        int r = options_parse(&s->table, argc, argv, &o, &rest, &rest_n);

        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        if (rest_n)
                return options_usage_error(&s->table, "unexpected argument '%s'", rest[0]);
        r = control_client_ask(control_client_socket(o.socket), json_pack("{s:s}", "op", s->op), &answer);
        if (r != 0)
                return r;
        if (o.json)
                (void)(json_dumpf(answer, stdout, JSON_INDENT(2)) == 0 && putchar('\n'));
        else
                s->print(json_object_get(answer, "ca"));
        json_decref(answer);
        return 0;
}

static const struct command commands[] = {
        {"export", "print the CA's certificate in PEM", run},
        {"rotate", "make a new CA", run},
        {"show", "show the CA: its digest, how long it is valid", run},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl ca", NULL, commands};

int command_ca(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
