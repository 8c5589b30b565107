/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/audit_log.h"
#include "tools/wbctl/command.h"

#define LINES_MAX 1000000u
#define FOLLOW_MS 200

struct tail_options {
        const char *dir;
        const char *vm;
        uint64_t lines;
        bool follow;
        bool json;
        bool is_headed;
};

static const struct option_spec tail_specs[] = {
        {"follow", 'f', OPTION_FLAG, offsetof(struct tail_options, follow), NULL,
                "go on with what is written from now on"},
        {"lines", 'n', OPTION_U64, offsetof(struct tail_options, lines), "N", "how many to begin with (20)"},
        {"vm", 0, OPTION_STRING, offsetof(struct tail_options, vm), "NAME", "the records of one VM"},
        {"dir", 0, OPTION_STRING, offsetof(struct tail_options, dir), "DIR", "the audit's dir (" AUDIT_DEFAULT_DIR ")"},
        {"json", 0, OPTION_FLAG, offsetof(struct tail_options, json), NULL, "the records as they stand in the log"},
};

static const struct option_table tail_table = {
        .usage = "wbctl audit tail [-f] [-n N] [--vm NAME] [--dir DIR] [--json]",
        .summary = "Shows the last records of the audit log: who asked for what, and what was decided.",
        .example = "wbctl audit tail -f --vm demo",
        .specs = tail_specs,
        .specs_n = sizeof(tail_specs) / sizeof(*tail_specs),
};

static bool counts(void *userdata, const char *text)
{
        const struct tail_options *o = userdata;
        struct audit_line line = {0};
        bool is;

        if (!o->vm)
                return true;
        is = audit_line_parse(text, strlen(text), &line) == 0 && line.vm && strcmp(line.vm, o->vm) == 0;
        audit_line_done(&line);
        return is;
}

/* Once, and only where there is a log. */
static void print_head(struct tail_options *o)
{
        if (!o->json && !o->is_headed)
                audit_print_head();
        o->is_headed = true;
}

static void print_record(void *userdata, char *text)
{
        struct tail_options *o = userdata;
        const struct audit_text whole = {.text = text, .n = strlen(text)};
        struct audit_line line;

        print_head(o);
        if (audit_line_parse(text, whole.n, &line) != 0) {
                printf("(not a record; `wbctl audit verify` says more)\n");
                return;
        }
        if (o->vm && (!line.vm || strcmp(line.vm, o->vm) != 0))
                ;
        else if (o->json)
                audit_print_line(&whole, &line);
        else
                audit_print_row(&line);
        audit_line_done(&line);
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

int audit_tail(int argc, char **argv)
{
        struct tail_options o = {.dir = AUDIT_DEFAULT_DIR, .lines = 20};
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
        r = audit_log_last(o.dir, o.lines, counts, print_record, &o, &place);
        if (r == 0)
                print_head(&o);
        if (r == 0 && o.follow)
                r = follow(&o, &place);
        if (r < 0)
                fprintf(stderr, "wbctl: the audit log in %s: %s\n", o.dir, strerrordesc_np(-r));
        return r < 0 ? EXIT_FAILED : 0;
}
