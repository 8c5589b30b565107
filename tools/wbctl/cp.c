/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/copy.h"
#include "tools/wbctl/target.h"

struct cp_options {
        struct target_options target;
        struct copy_options copy;
        uint64_t connect_ms;
};

#define OPTION(member) offsetof(struct cp_options, member)

static const struct option_spec specs[] = {
        {"recursive", 'r', OPTION_FLAG, OPTION(copy.recursive), NULL, "folders as well; with - a tar"},
        {"preserve", 'p', OPTION_FLAG, OPTION(copy.preserve), NULL,
                "keep owners (as numbers), and modes over the umask"},
        {"owner", 0, OPTION_STRING, OPTION(copy.owner), "U[:G]", "who owns it in the guest (root)"},
        {"special", 0, OPTION_FLAG, OPTION(copy.special), NULL, "devices, FIFOs and set-user-ID bits as well"},
        {"one-file-system", 'x', OPTION_FLAG, OPTION(copy.one_filesystem), NULL, "leave out what is mounted below"},
        {"root", 0, OPTION_STRING, OPTION(copy.root), "DIR", "of the guest: its paths are taken within DIR"},
        {"connect-timeout", 0, OPTION_DURATION_MS, OPTION(connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        TARGET_SPECS(struct cp_options, target),
};

static const struct option_table table = {
        .usage = "wbctl cp [--vm NAME | --uds PATH | --cid N | --unix DIR] [OPTION]... SRC DST",
        .summary =
                "Copies files into a guest or out of it. One of SRC and DST is the guest's: \":/PATH\" with a target\n"
                "option, or \"NAME:/PATH\" for a VM that the broker knows. - is stdin or stdout. Modes, times and\n"
                "holes are kept; a file is in its place whole, or not at all.",
        .example = "wbctl cp --vm demo -r src :/root/src; wbctl cp demo:/etc/os-release -",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* One of the two sides. */
struct side {
        const char *path; /* without what says that it is the guest's */
        bool is_guest;
        char *vm; /* freed by the caller; NULL: named by an option */
};

static bool has_target(const struct target_options *t)
{
        return t->vm || t->uds || t->unix_dir || t->cid;
}

static int parse_side(const char *text, bool target_given, struct side *ret)
{
        const char *colon = strchr(text, ':');

        *ret = (struct side){.path = text};
        if (!colon || (target_given && colon != text))
                return 0;
        if (colon == text) {
                ret->is_guest = true;
                ret->path = text + 1;
        } else if (colon[1] == '/' && !memchr(text, '/', (size_t)(colon - text))) {
                ret->is_guest = true;
                ret->path = colon + 1;
                ret->vm = strndup(text, (size_t)(colon - text));
                return ret->vm ? 0 : EXIT_FAILED;
        }
        return 0;
}

static int check_sides(const struct side *from, const struct side *to)
{
        const struct side *guest = from->is_guest ? from : to;

        if (from->is_guest == to->is_guest)
                return options_usage_error(&table, "%s of SRC and DST is the guest's: \":/PATH\" or \"NAME:/PATH\"",
                        from->is_guest ? "only one" : "one");
        if (guest->path[0] != '/')
                return options_usage_error(&table, "a guest's path begins with /, not '%s'", guest->path);
        if (strlen(guest->path) > TREE_PATH_MAX)
                return options_usage_error(&table, "the guest's path is too long");
        return 0;
}

static int copy(const struct cp_options *o, const struct target *target, const struct side *from, const struct side *to)
{
        struct copy c = {.options = &o->copy, .answer_ms = o->connect_ms};
        _cleanup_close_ int fd = -1;
        int r = agent_call_dial(target, o->connect_ms, &fd);

        if (r != 0)
                return r;
        (void)signal(SIGPIPE, SIG_IGN);
        client_call_init(&c.call, fd, UINT64_MAX);
        copy_progress_begin(&c.progress);
        c.guest = from->is_guest ? from->path : to->path;
        c.local = from->is_guest ? to->path : from->path;
        r = from->is_guest ? copy_get(&c) : copy_put(&c);
        copy_progress_end(&c.progress);
        client_call_done(&c.call);
        return r;
}

static int run(struct cp_options *o, const char *from_text, const char *to_text)
{
        bool target_given = has_target(&o->target);
        struct side from = {0}, to = {0};
        struct target target = {0};
        int r = parse_side(from_text, target_given, &from);

        if (r == 0)
                r = parse_side(to_text, target_given, &to);
        if (r == 0)
                r = check_sides(&from, &to);
        if (r == 0 && (from.vm || to.vm))
                o->target.vm = from.vm ? from.vm : to.vm;
        if (r == 0)
                r = target_resolve(&table, &o->target, &target);
        if (r == 0)
                r = copy(o, &target, &from, &to);
        target_done(&target);
        free(from.vm);
        free(to.vm);
        return r;
}

int command_cp(int argc, char **argv)
{
        struct cp_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n != 2)
                r = options_usage_error(&table, "SRC and DST are needed");
        if (r == 0 && options.copy.preserve && options.copy.owner)
                r = options_usage_error(&table, "--preserve and --owner exclude each other");
        if (r == 0)
                r = run(&options, rest[0], rest[1]);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        return r < 0 ? EXIT_FAILED : r;
}
