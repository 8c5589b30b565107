/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/file_print.h"
#include "tools/wbctl/target.h"

/* The small things that are done to a guest's files; `wbctl cp` does the rest. */

struct file_options {
        struct target_options target;
        uint64_t timeout_ms;
        const char *root;
        const char *mode;
        const char *owner;
        bool json, follow, parents, recursive, replace;
};

#define OPTION(member) offsetof(struct file_options, member)
#define COMMON_SPECS                                                                                                   \
        {"timeout", 0, OPTION_DURATION_MS, OPTION(timeout_ms), "DURATION",                                             \
                "how long the guest may take to answer (30s)"},                                                        \
                {"root", 0, OPTION_STRING, OPTION(root), "DIR", "of the guest: PATH is taken within DIR"},             \
                TARGET_SPECS(struct file_options, target)
#define JSON_SPEC                                                                                                      \
        {                                                                                                              \
                "json", 0, OPTION_FLAG, OPTION(json), NULL, "JSON instead of text"                                     \
        }

static const struct option_spec stat_specs[] = {JSON_SPEC,
        {"follow", 'L', OPTION_FLAG, OPTION(follow), NULL, "what a symbolic link at the end leads to"}, COMMON_SPECS};
static const struct option_spec list_specs[] = {JSON_SPEC, COMMON_SPECS};
static const struct option_spec mkdir_specs[] = {{"parents", 'p', OPTION_FLAG, OPTION(parents), NULL,
                                                         "make what is missing on the way; no error if it is there"},
        {"mode", 'm', OPTION_STRING, OPTION(mode), "OCTAL", "its mode (755)"},
        {"owner", 0, OPTION_STRING, OPTION(owner), "U[:G]", "who owns it (root)"}, COMMON_SPECS};
static const struct option_spec remove_specs[] = {
        {"recursive", 'r', OPTION_FLAG, OPTION(recursive), NULL, "a folder with all that is in it"}, COMMON_SPECS};
static const struct option_spec rename_specs[] = {
        {"replace", 0, OPTION_FLAG, OPTION(replace), NULL, "what is at the new place"}, COMMON_SPECS};

#define TABLE(word, arguments, text, example_text, specs_array)                                                        \
        {                                                                                                              \
                .usage = "wbctl file " word " " TARGET_USAGE " " arguments, .summary = text,                           \
                .example = "wbctl file " word " --vm demo " example_text, .specs = specs_array,                        \
                .specs_n = sizeof(specs_array) / sizeof(specs_array[0]), .intermixed = true,                           \
        }

enum operation {
        OPERATION_LIST,
        OPERATION_MKDIR,
        OPERATION_RENAME,
        OPERATION_REMOVE,
        OPERATION_STAT,
        OPERATION_WATCH,
        OPERATIONS,
};

static const struct option_table tables[] = {
        [OPERATION_LIST] = TABLE("ls", "PATH", "Lists a folder of a guest.", "/root", list_specs),
        [OPERATION_MKDIR] = TABLE("mkdir", "PATH", "Makes a folder in a guest.", "-p /srv/data", mkdir_specs),
        [OPERATION_RENAME] =
                TABLE("mv", "FROM TO", "Renames a file of a guest, in one step.", "/tmp/new /srv/data/x", rename_specs),
        [OPERATION_REMOVE] = TABLE("rm", "PATH", "Removes a file of a guest; never follows symbolic links.",
                "-r /tmp/build", remove_specs),
        [OPERATION_STAT] = TABLE("stat", "PATH", "Shows what a file of a guest is.", "/etc/passwd", stat_specs),
        [OPERATION_WATCH] = TABLE("watch", "PATH",
                "Tells what happens to a file of a guest, or in a folder, until it is interrupted.", "/srv/data",
                list_specs),
};
static_assert(sizeof(tables) / sizeof(tables[0]) == OPERATIONS, "a table for each operation");

static int run(int argc, char **argv);

static const struct command commands[] = {
        [OPERATION_LIST] = {"ls", "list a folder of a guest", run},
        [OPERATION_MKDIR] = {"mkdir", "make a folder in a guest", run},
        [OPERATION_RENAME] = {"mv", "rename a file of a guest, in one step", run},
        [OPERATION_REMOVE] = {"rm", "remove a file of a guest", run},
        [OPERATION_STAT] = {"stat", "what a file of a guest is", run},
        [OPERATION_WATCH] = {"watch", "what happens to a file of a guest, or in a folder", run},
        [OPERATIONS] = {NULL, NULL, NULL},
};

/* ---- the question */

/* What its messages live in. */
struct question {
        Wb__ToAgent m;
        Wb__FilePlace place, to;
        union {
                Wb__FileList list;
                Wb__FileMkdir mkdir;
                Wb__FileRename rename;
                Wb__FileRemove remove;
                Wb__FileStat stat;
                Wb__FileWatch watch;
        };
};

static void set_place(Wb__FilePlace *place, const char *root, const char *path)
{
        wb__file_place__init(place);
        place->path = (ProtobufCBinaryData){.len = strlen(path), .data = (uint8_t *)(uintptr_t)path};
        if (root)
                place->root = (ProtobufCBinaryData){.len = strlen(root), .data = (uint8_t *)(uintptr_t)root};
}

static int set_mkdir(const struct file_options *o, struct question *q)
{
        wb__file_mkdir__init(&q->mkdir);
        q->mkdir.place = &q->place;
        q->mkdir.mode = 0755;
        q->mkdir.parents = o->parents;
        q->mkdir.owner = (char *)(uintptr_t)(o->owner ? o->owner : "");
        q->m.body_case = WB__TO_AGENT__BODY_FILE_MKDIR;
        q->m.file_mkdir = &q->mkdir;
        if (o->mode && parse_octal(o->mode, 07777, &q->mkdir.mode) < 0)
                return options_usage_error(&tables[OPERATION_MKDIR], "--mode wants octal, not '%s'", o->mode);
        return 0;
}

static int set_question(enum operation operation, const struct file_options *o, char **paths, struct question *q)
{
        wb__to_agent__init(&q->m);
        set_place(&q->place, o->root, paths[0]);
        switch (operation) {
        case OPERATION_LIST:
                wb__file_list__init(&q->list);
                q->list.place = &q->place;
                q->m.body_case = WB__TO_AGENT__BODY_FILE_LIST;
                q->m.file_list = &q->list;
                return 0;
        case OPERATION_MKDIR: return set_mkdir(o, q);
        case OPERATION_RENAME:
                wb__file_rename__init(&q->rename);
                set_place(&q->to, o->root, paths[1]);
                q->rename.from = &q->place;
                q->rename.to = &q->to;
                q->rename.replace = o->replace;
                q->m.body_case = WB__TO_AGENT__BODY_FILE_RENAME;
                q->m.file_rename = &q->rename;
                return 0;
        case OPERATION_REMOVE:
                wb__file_remove__init(&q->remove);
                q->remove.place = &q->place;
                q->remove.recursive = o->recursive;
                q->m.body_case = WB__TO_AGENT__BODY_FILE_REMOVE;
                q->m.file_remove = &q->remove;
                return 0;
        case OPERATION_STAT:
                wb__file_stat__init(&q->stat);
                q->stat.place = &q->place;
                q->stat.follow = o->follow;
                q->m.body_case = WB__TO_AGENT__BODY_FILE_STAT;
                q->m.file_stat = &q->stat;
                return 0;
        case OPERATION_WATCH:
                wb__file_watch__init(&q->watch);
                q->watch.place = &q->place;
                q->m.body_case = WB__TO_AGENT__BODY_FILE_WATCH;
                q->m.file_watch = &q->watch;
                return 0;
        case OPERATIONS: break;
        }
        return EXIT_USAGE;
}

/* ---- the answers */

/* One of them. 0 while more may come, -ECANCELED after the last one, or EXIT_FAILED, said. */
static int take(enum operation operation, const struct file_options *o, const char *path, struct file_printer *printer,
        const Wb__FromAgent *m)
{
        switch ((int)m->body_case) {
        case WB__FROM_AGENT__BODY_FILE_ENTRY:
                file_print_entry(printer, path, m->file_entry);
                return operation == OPERATION_STAT ? -ECANCELED : 0;
        case WB__FROM_AGENT__BODY_FILE_READY: return operation == OPERATION_WATCH ? 0 : agent_call_failed(0, m);
        case WB__FROM_AGENT__BODY_FILE_EVENT: file_print_event(o->json, m->file_event); return 0;
        case WB__FROM_AGENT__BODY_FILE_DONE: return -ECANCELED;
        default: return agent_call_failed(0, m);
        }
}

static int converse(
        enum operation operation, const struct file_options *o, const char *path, int fd, const struct question *q)
{
        struct file_printer printer = {.json = o->json, .is_list = operation == OPERATION_LIST};
        struct client_call call;
        int r;

        client_call_init(&call, fd, clock_monotonic_ns() + o->timeout_ms * NSEC_PER_MSEC);
        r = client_call_send(&call, &q->m);
        if (r == -EPIPE)
                r = 0; /* the answer says why */
        if (r < 0)
                r = agent_call_failed(r, NULL);
        while (r == 0) {
                Wb__FromAgent *m;

                r = client_call_receive(&call, &m);
                if (r < 0) {
                        r = agent_call_failed(r, NULL);
                        break;
                }
                r = take(operation, o, path, &printer, m);
                codec_free_from_agent(m);
                if (operation == OPERATION_WATCH)
                        call.deadline_ns = UINT64_MAX;
        }
        file_print_end(&printer, r == -ECANCELED);
        client_call_done(&call);
        return r == -ECANCELED ? 0 : r;
}

static int carry_out(enum operation operation, const struct file_options *o, char **paths)
{
        struct target target = {0};
        struct question question;
        _cleanup_close_ int fd = -1;
        int r = set_question(operation, o, paths, &question);

        if (r == 0)
                r = target_resolve(&tables[operation], &o->target, &target);
        if (r == 0)
                r = agent_call_dial(&target, o->timeout_ms, &fd);
        if (r == 0)
                r = converse(operation, o, paths[0], fd, &question);
        target_done(&target);
        return r;
}

static int run(int argc, char **argv)
{
        struct file_options options = {.timeout_ms = 30000};
        enum operation operation = 0;
        size_t rest_n, wanted;
        char **rest;
        int r;

        while (strcmp(argv[0], commands[operation].name) != 0)
                operation++;
        r = options_parse(&tables[operation], argc, argv, &options, &rest, &rest_n);
        wanted = operation == OPERATION_RENAME ? 2 : 1;
        if (r == 0 && rest_n != wanted)
                r = options_usage_error(
                        &tables[operation], wanted == 2 ? "FROM and TO are needed" : "one PATH is needed");
        if (r == 0)
                r = carry_out(operation, &options, rest);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        return r < 0 ? EXIT_FAILED : r;
}

static const struct command_group group = {"wbctl file", NULL, commands};

int command_file(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
