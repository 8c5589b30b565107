/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/printable.h"

#define POLICY_MAX_BYTES (1024u * 1024u)

struct vm_options {
        const char *socket;
        const char *backend;
        const char *transport;
        const char *path;
        const char *policy;
        uint64_t cid;
        uint64_t pid;
        uint64_t for_ms;
        bool no_agent;
        bool json;
};

#define SOCKET_SPEC                                                                                                    \
        {                                                                                                              \
                "socket", 0, OPTION_STRING, offsetof(struct vm_options, socket), "PATH",                               \
                        "the broker's control socket (WB_SOCKET)"                                                      \
        }
#define JSON_SPEC                                                                                                      \
        {                                                                                                              \
                "json", 0, OPTION_FLAG, offsetof(struct vm_options, json), NULL, "the broker's answer as JSON"         \
        }

#define FOR_SPEC                                                                                                       \
        {                                                                                                              \
                "for", 0, OPTION_DURATION_MS, offsetof(struct vm_options, for_ms), "DURATION",                         \
                        "how long the policy holds; then the VM is revoked"                                            \
        }

static const struct option_spec policy_specs[] = {FOR_SPEC, SOCKET_SPEC, JSON_SPEC};

static const struct option_spec common_specs[] = {SOCKET_SPEC, JSON_SPEC};

static const struct option_spec add_specs[] = {
        {"backend", 0, OPTION_STRING, offsetof(struct vm_options, backend), "KIND",
                "firecracker, cloud-hypervisor, qemu, gvisor, runc or other"},
        {"transport", 0, OPTION_STRING, offsetof(struct vm_options, transport), "KIND",
                "hybrid, unix or vsock (which --cid implies)"},
        {"path", 0, OPTION_STRING, offsetof(struct vm_options, path), "PATH",
                "hybrid: the socket's base path; unix: the directory"},
        {"cid", 0, OPTION_U64, offsetof(struct vm_options, cid), "N", "vsock: the guest's CID"},
        {"pid", 0, OPTION_U64, offsetof(struct vm_options, pid), "PID",
                "the VMM's process: evidence of the isolation; its end removes the VM"},
        {"no-agent", 0, OPTION_FLAG, offsetof(struct vm_options, no_agent), NULL,
                "no wbagent inside: egress is open without activation"},
        {"policy", 0, OPTION_STRING, offsetof(struct vm_options, policy), "FILE", "what the VM may reach"},
        FOR_SPEC,
        SOCKET_SPEC,
        JSON_SPEC,
};

/* ---- what is shown */

static const char *text_of(const json_t *o, const char *key)
{
        const char *text = json_string_value(json_object_get(o, key));

        return text ? text : "-";
}

static long long number_of(const json_t *o, const char *key)
{
        return json_integer_value(json_object_get(o, key));
}

static void print_json(const json_t *answer)
{
        (void)json_dumpf(answer, stdout, JSON_INDENT(2));
        putchar('\n');
}

static void print_list(const json_t *answer)
{
        json_t *vm;
        size_t i;

        printf("%-20s %-10s %-16s %-9s %-9s %5s %8s %12s %12s\n", "NAME", "STATE", "BACKEND", "TIER", "VERIFIED", "GEN",
                "SESSIONS", "UP", "DOWN");
        json_array_foreach (json_object_get(answer, "vms"), i, vm)
                printf("%-20s %-10s %-16s %-9s %-9s %5lld %8lld %12lld %12lld\n", text_of(vm, "name"),
                        text_of(vm, "state"), text_of(vm, "backend"), text_of(vm, "tier"),
                        json_is_true(json_object_get(vm, "verified")) ? "yes" : "no", number_of(vm, "generation"),
                        number_of(vm, "sessions_open"), number_of(vm, "bytes_up"), number_of(vm, "bytes_down"));
}

/* One line a layer; `!` is one that was asked for or that the tier rests on, and that is not there. */
static void print_layers(const json_t *layers)
{
        char fact[512];
        json_t *layer;
        size_t i;

        printf("\n  %-14s %-11s %s\n", "LAYER", "STATE", "FACT");
        json_array_foreach (layers, i, layer) {
                bool wanted = json_is_true(json_object_get(layer, "required")) ||
                              json_is_true(json_object_get(layer, "tier_rests_on_it"));

                printable(text_of(layer, "fact"), fact, sizeof(fact));
                printf("%s %-14s %-11s %s\n", wanted && strcmp(text_of(layer, "state"), "present") != 0 ? "!" : " ",
                        text_of(layer, "layer"), text_of(layer, "state"), fact);
        }
}

static void print_vm(const json_t *answer)
{
        static const char *const texts[] = {
                "state", "backend", "transport", "path", "tier", "isolation", "checked", "policy", "expires"};
        static const char *const numbers[] = {"cid", "pid", "generation", "sessions_open", "sessions_total",
                "allowed_total", "denied_total", "bytes_up", "bytes_down"};
        const json_t *vm = json_object_get(answer, "vm");

        printf("%s\n", text_of(vm, "name"));
        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
                if (json_object_get(vm, texts[i]))
                        printf("  %-14s %s\n", texts[i], text_of(vm, texts[i]));
        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
                if (i > 1 || number_of(vm, numbers[i]))
                        printf("  %-14s %lld\n", numbers[i], number_of(vm, numbers[i]));
        print_layers(json_object_get(vm, "layers"));
}

static void print_activation(const json_t *answer)
{
        char detail[512];
        json_t *step;
        size_t i;

        json_array_foreach (json_object_get(answer, "steps"), i, step) {
                printable(text_of(step, "detail"), detail, sizeof(detail));
                printf("%-10.32s %-6s %10.3f ms  %s\n", text_of(step, "name"),
                        json_is_true(json_object_get(step, "ok")) ? "ok" : "FAILED",
                        (double)number_of(step, "duration_ns") / 1e6, detail);
        }
        printf("open, generation %lld\n", number_of(answer, "generation"));
}

/* ---- what is asked */

static int set_policy(json_t *question, const char *file)
{
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r = io_read_file(file, POLICY_MAX_BYTES + 1, &text, &n);
        json_t *value;

        if (r < 0) {
                fprintf(stderr, "%s: %s\n", file, strerrordesc_np(-r));
                return EXIT_USAGE;
        }
        value = json_stringn(text, n);
        if (!value) {
                fprintf(stderr, "%s:1:1: not UTF-8\n", file);
                return EXIT_USAGE;
        }
        (void)json_object_set_new(question, "policy", value);
        (void)json_object_set_new(question, "policy_file", json_string(file));
        return 0;
}

/* The broker has another working directory. */
static int set_path(json_t *question, const char *path)
{
        char directory[PATH_MAX];
        json_t *value;

        if (path[0] == '/')
                value = json_string(path);
        else if (getcwd(directory, sizeof(directory)))
                value = json_sprintf("%s/%s", directory, path);
        else
                value = NULL;
        if (!value) {
                fprintf(stderr, "wbctl: --path %s: no such path can be told to the broker\n", path);
                return EXIT_USAGE;
        }
        (void)json_object_set_new(question, "path", value);
        return 0;
}

static int fill_add(json_t *question, const struct option_table *table, const struct vm_options *o)
{
        const char *transport = o->transport ? o->transport : o->cid ? "vsock" : NULL;
        int r = 0;

        if (!o->backend || !transport || !o->policy)
                return options_usage_error(table, "--backend, --policy, and --transport or --cid are needed");
        (void)json_object_set_new(question, "backend", json_string(o->backend));
        (void)json_object_set_new(question, "transport", json_string(transport));
        if (o->cid)
                (void)json_object_set_new(question, "cid", json_integer((json_int_t)o->cid));
        if (o->pid)
                (void)json_object_set_new(question, "pid", json_integer((json_int_t)o->pid));
        (void)json_object_set_new(question, "agent", json_boolean(!o->no_agent));
        if (o->path)
                r = set_path(question, o->path);
        return r ? r : set_policy(question, o->policy);
}

static const struct subcommand {
        const char *name;
        const char *op;
        size_t arguments;
        struct option_table table;
        void (*print)(const json_t *answer); /* NULL: nothing is said of success */
} subcommands[] = {
        {"add", "vm_add", 1,
                {.usage = "wbctl vm add NAME --backend KIND --policy FILE (--transport KIND --path PATH | --cid N)\n"
                          "                    [--pid PID] [--no-agent] [--for DURATION]",
                        .summary =
                                "Gives a running VM to the broker, which decides whether its isolation suffices for its policy.",
                        .example =
                                "wbctl vm add demo --backend firecracker --transport hybrid --path /run/vm/demo.vsock --pid 4242 --policy demo.yaml",
                        .specs = add_specs,
                        .specs_n = sizeof(add_specs) / sizeof(*add_specs),
                        .intermixed = true},
                NULL},
        {"rm", "vm_rm", 1,
                {.usage = "wbctl vm rm NAME",
                        .summary = "Takes a VM from the broker: its connections are cut.",
                        .example = "wbctl vm rm demo"},
                NULL},
        {"ls", "vm_ls", 0,
                {.usage = "wbctl vm ls [--json]", .summary = "Lists the broker's VMs.", .example = "wbctl vm ls"},
                print_list},
        {"show", "vm_show", 1,
                {.usage = "wbctl vm show NAME [--json]",
                        .summary = "Shows a VM: state, isolation and its evidence, policy, counters.",
                        .example = "wbctl vm show demo"},
                print_vm},
        {"policy", "vm_policy", 2,
                {.usage = "wbctl vm policy NAME FILE [--for DURATION]",
                        .summary =
                                "Replaces a VM's policy: live connections are judged again, those that no longer pass are cut.",
                        .example = "wbctl vm policy demo stricter.yaml",
                        .specs = policy_specs,
                        .specs_n = sizeof(policy_specs) / sizeof(*policy_specs),
                        .intermixed = true},
                NULL},
        {"quiesce", "vm_quiesce", 1,
                {.usage = "wbctl vm quiesce NAME",
                        .summary = "Makes a VM ready for a snapshot: egress closed, workloads frozen, secrets wiped.",
                        .example = "wbctl vm quiesce demo"},
                NULL},
        {"resume", "vm_activate", 1,
                {.usage = "wbctl vm resume NAME [--json]",
                        .summary =
                                "Activates a VM, after its boot or a resume: randomness, clock, network; then egress opens.",
                        .example = "wbctl vm resume demo"},
                print_activation},
        {"revoke", "vm_revoke", 1,
                {.usage = "wbctl vm revoke NAME",
                        .summary = "Cuts all of a VM's connections and allows none from then on.",
                        .example = "wbctl vm revoke demo"},
                NULL},
};
#define SUBCOMMANDS_N (sizeof(subcommands) / sizeof(*subcommands))

static int ask(
        const struct subcommand *s, const struct option_table *table, const struct vm_options *o, char **arguments)
{
        json_t *question = json_pack("{s:s}", "op", s->op), *answer = NULL;
        int r = 0;

        if (s->arguments)
                (void)json_object_set_new(question, "name", json_string(arguments[0]));
        if (s->table.specs == add_specs)
                r = fill_add(question, table, o);
        else if (s->arguments == 2)
                r = set_policy(question, arguments[1]);
        if (o->for_ms)
                (void)json_object_set_new(question, "for_ms", json_integer((json_int_t)o->for_ms));
        if (r != 0) {
                json_decref(question);
                return r;
        }
        r = control_client_ask(control_client_socket(o->socket), question, &answer);
        if (r != 0)
                return r;
        if (o->json)
                print_json(answer);
        else if (s->print)
                s->print(answer);
        json_decref(answer);
        return 0;
}

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
        struct option_table table = s->table;
        struct vm_options o = {0};
        size_t rest_n;
        char **rest;
        int r;

        if (!table.specs) {
                table.specs = common_specs;
                table.specs_n = sizeof(common_specs) / sizeof(*common_specs);
                table.intermixed = true;
        }
        r = options_parse(&table, argc, argv, &o, &rest, &rest_n);
        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        if (rest_n != s->arguments)
                return options_usage_error(&table, "%zu argument%s needed, %zu given", s->arguments,
                        s->arguments == 1 ? " is" : "s are", rest_n);
        return ask(s, &table, &o, rest);
}

static const struct command commands[] = {
        {"add", "give a running VM to the broker", run},
        {"ls", "list the broker's VMs", run},
        {"policy", "replace a VM's policy", run},
        {"quiesce", "make a VM ready for a snapshot", run},
        {"resume", "activate a VM, after its boot or a resume", run},
        {"revoke", "cut all of a VM's connections, and allow none from then on", run},
        {"rm", "take a VM from the broker", run},
        {"show", "show a VM: state, isolation, policy, counters", run},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl vm", NULL, commands};

int command_vm(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
