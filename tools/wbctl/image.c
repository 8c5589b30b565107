/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image: guest images for `wbctl run`. */
#include <stdio.h>
#include <string.h>

#include "tools/wbctl/command.h"
#include "tools/wbctl/image_command.h"

static const struct command image_commands[] = {
        {"build", "build a guest image from this machine's distribution", image_build_command},
        {"ls", "list the images in the cache, and who signed them", image_ls_command},
        {"sign", "write an image's manifest and its signature", image_sign_command},
        {"verify", "is an image what the owner of a key signed?", image_verify_command},
        {NULL, NULL, NULL},
};

static void print_usage(FILE *to)
{
        fprintf(to, "usage: wbctl image COMMAND [ARGUMENT]...\n\ncommands:\n");
        for (const struct command *c = image_commands; c->name; c++)
                fprintf(to, "  %-10s %s\n", c->name, c->summary);
        fprintf(to, "\nwbctl image COMMAND --help shows its options and an example.\n");
}

int command_image(int argc, char **argv)
{
        if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
                print_usage(stdout);
                return 0;
        }
        for (const struct command *c = image_commands; argc >= 2 && c->name; c++)
                if (strcmp(argv[1], c->name) == 0)
                        return c->run(argc - 1, argv + 1);
        print_usage(stderr);
        return EXIT_USAGE;
}
