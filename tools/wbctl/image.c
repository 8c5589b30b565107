/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image: guest images for `wbctl run`. */
#include <stddef.h>

#include "tools/wbctl/command.h"
#include "tools/wbctl/image_command.h"

static const struct command image_commands[] = {
        {"build", "build a guest image from this machine's distribution", image_build_command},
        {"ls", "list the images in the cache, and who signed them", image_ls_command},
        {"sign", "write an image's manifest and its signature", image_sign_command},
        {"verify", "is an image what the owner of a key signed?", image_verify_command},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl image", NULL, image_commands};

int command_image(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
