/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl snapshot: a VM that stands still on disk, and clones of it. */
#include <stdio.h>
#include <string.h>

#include "tools/wbctl/command.h"
#include "tools/wbctl/snapshot_command.h"

static const struct command snapshot_commands[] = {
        {"create", "boot a VM, warm it by a command, and save it", snapshot_create_command},
        {"restore", "run a command in a clone of a saved VM", snapshot_restore_command},
        {NULL, NULL, NULL},
};

static void print_usage(FILE *to)
{
        fprintf(to, "usage: wbctl snapshot COMMAND [ARGUMENT]...\n\ncommands:\n");
        for (const struct command *c = snapshot_commands; c->name; c++)
                fprintf(to, "  %-10s %s\n", c->name, c->summary);
        fprintf(to, "\nwbctl snapshot COMMAND --help shows its options and an example.\n");
}

int command_snapshot(int argc, char **argv)
{
        if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
                print_usage(stdout);
                return 0;
        }
        for (const struct command *c = snapshot_commands; argc >= 2 && c->name; c++)
                if (strcmp(argv[1], c->name) == 0)
                        return c->run(argc - 1, argv + 1);
        print_usage(stderr);
        return EXIT_USAGE;
}
