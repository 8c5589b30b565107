/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/command.h"

#include <stdio.h>
#include <string.h>

static void print_usage(FILE *to, const struct command_group *group)
{
        fprintf(to, "usage: %s COMMAND [ARGUMENT]...\n\n", group->name);
        if (group->summary)
                fprintf(to, "%s\n\n", group->summary);
        fprintf(to, "commands:\n");
        for (const struct command *c = group->commands; c->name; c++)
                fprintf(to, "  %-10s %s\n", c->name, c->summary);
        fprintf(to, "\n%s COMMAND --help shows its options and an example.\n", group->name);
}

int command_group_run(const struct command_group *group, int argc, char **argv)
{
        if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
                print_usage(stdout, group);
                return 0;
        }
        for (const struct command *c = group->commands; argc >= 2 && c->name; c++)
                if (strcmp(argv[1], c->name) == 0)
                        return c->run(argc - 1, argv + 1);
        if (argc >= 2)
                fprintf(stderr, "%s: unknown command '%s'\n", group->name, argv[1]);
        print_usage(stderr, group);
        return EXIT_USAGE;
}
