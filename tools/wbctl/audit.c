/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "proto/base/options.h"
#include "tools/wbctl/audit_log.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/printable.h"

#define DEFAULT_DIR "/var/log/wbbroker"
#define LINES_MAX   1000000u
#define FOLLOW_MS   200

struct tail_options {
        const char *dir;
        const char *vm;
        uint64_t lines;
        bool follow;
        bool json;
};

static const struct option_spec tail_specs[] = {
        {"follow", 'f', OPTION_FLAG, offsetof(struct tail_options, follow), NULL,
                "go on with what is written from now on"},
        {"lines", 'n', OPTION_U64, offsetof(struct tail_options, lines), "N", "how many to begin with (20)"},
        {"vm", 0, OPTION_STRING, offsetof(struct tail_options, vm), "NAME", "the records of one VM"},
        {"dir", 0, OPTION_STRING, offsetof(struct tail_options, dir), "DIR", "the audit's dir (" DEFAULT_DIR ")"},
        {"json", 0, OPTION_FLAG, offsetof(struct tail_options, json), NULL, "the records as they stand in the log"},
};

static const struct option_table tail_table = {
        .usage = "wbctl audit tail [-f] [-n N] [--vm NAME] [--dir DIR] [--json]",
        .summary = "Shows the last records of the audit log: who asked for what, and what was decided.",
        .example = "wbctl audit tail -f --vm demo",
        .specs = tail_specs,
        .specs_n = sizeof(tail_specs) / sizeof(*tail_specs),
};

static const struct option_table audit_table = {
        .usage = "wbctl audit tail",
        .summary = "The broker's audit log.",
        .example = "wbctl audit tail -n 50",
};

static bool counts(void *userdata, const char *line)
{
        const struct tail_options *o = userdata;
        const char *vm;
        json_t *record;
        bool is;

        if (!o->vm)
                return true;
        record = json_loads(line, 0, NULL);
        vm = json_string_value(json_object_get(record, "vm"));
        is = vm && strcmp(vm, o->vm) == 0;
        json_decref(record);
        return is;
}

static void text_of(const json_t *record, const char *key, char *ret, size_t room)
{
        const char *text = json_string_value(json_object_get(record, key));

        printable(text ? text : "-", ret, room);
}

/* "name:443", or "-". */
static void target_of(const json_t *record, char *ret, size_t room)
{
        const json_t *port = json_object_get(record, "port");
        const json_t *host = json_object_get(record, "host");
        char text[300];

        if (!host) {
                (void)snprintf(ret, room, "-");
                return;
        }
        printable(json_string_value(host), text, sizeof(text));
        if (port)
                (void)snprintf(ret, room, strchr(text, ':') ? "[%s]:%lld" : "%s:%lld", text, json_integer_value(port));
        else
                (void)snprintf(ret, room, "%s", text);
}

static void bytes_of(const json_t *record, char *ret, size_t room)
{
        if (json_object_get(record, "bytes_up"))
                (void)snprintf(ret, room, "%lld/%lld", json_integer_value(json_object_get(record, "bytes_up")),
                        json_integer_value(json_object_get(record, "bytes_down")));
        else
                (void)snprintf(ret, room, "-");
}

static void print_head(void)
{
        printf("%-27s %-16s %-12s %-8s %-20s %-36s %-16s %s\n", "TIME", "VM", "EVENT", "DECISION", "REASON", "TARGET",
                "UP/DOWN", "DETAIL");
}

static void print_record(void *userdata, char *line)
{
        const struct tail_options *o = userdata;
        char ts[32], vm[80], event[24], decision[8], reason[32], target[320], bytes[48], detail[600];
        json_t *record;

        if (!counts(userdata, line))
                return;
        if (o->json) {
                puts(line);
                return;
        }
        record = json_loads(line, 0, NULL);
        text_of(record, "ts", ts, sizeof(ts));
        text_of(record, "vm", vm, sizeof(vm));
        text_of(record, "event", event, sizeof(event));
        text_of(record, "decision", decision, sizeof(decision));
        text_of(record, "reason", reason, sizeof(reason));
        target_of(record, target, sizeof(target));
        bytes_of(record, bytes, sizeof(bytes));
        text_of(record, "detail", detail, sizeof(detail));
        printf("%-27s %-16s %-12s %-8s %-20s %-36s %-16s %s\n", ts, vm, event, decision, reason, target, bytes,
                json_object_get(record, "detail") ? detail : "");
        json_decref(record);
}

/* Until it is interrupted, or nobody reads any more. */
static int follow(struct tail_options *o, struct audit_log_place *place)
{
        int r;

        do {
                struct pollfd reader = {.fd = STDOUT_FILENO, .events = 0};

                if (fflush(stdout) == EOF || (poll(&reader, 1, FOLLOW_MS) > 0 && reader.revents & (POLLERR | POLLHUP)))
                        return 0;
                r = audit_log_more(o->dir, place, print_record, o);
        } while (r == 0);
        return r;
}

static int tail(int argc, char **argv)
{
        struct tail_options o = {.dir = DEFAULT_DIR, .lines = 20};
        struct audit_log_place place = {0};
        size_t rest_n;
        char **rest;
        int r = options_parse(&tail_table, argc, argv, &o, &rest, &rest_n);

        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        if (rest_n)
                return options_usage_error(&tail_table, "unexpected argument '%s'", rest[0]);
        if (o.lines > LINES_MAX)
                return options_usage_error(&tail_table, "-n is at most %u", LINES_MAX);
        if (!o.json)
                print_head();
        r = audit_log_last(o.dir, o.lines, counts, print_record, &o, &place);
        if (r == 0 && o.follow)
                r = follow(&o, &place);
        if (r < 0)
                fprintf(stderr, "wbctl: the audit log in %s: %s\n", o.dir, strerrordesc_np(-r));
        return r < 0 ? EXIT_FAILED : 0;
}

int command_audit(int argc, char **argv)
{
        struct tail_options none;
        size_t rest_n;
        char **rest;

        if (argc > 1 && strcmp(argv[1], "tail") == 0)
                return tail(argc - 1, argv + 1);
        if (options_parse(&audit_table, argc, argv, &none, &rest, &rest_n) == OPTIONS_E_HELP)
                return 0;
        return options_usage_error(&audit_table, "the command is `tail`");
}
