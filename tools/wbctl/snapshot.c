/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl snapshot: a VM that stands still on disk, and clones of it. */
#include <stddef.h>

#include "tools/wbctl/command.h"
#include "tools/wbctl/snapshot_command.h"

static const struct command snapshot_commands[] = {
        {"create", "boot a VM, warm it by a command, and save it", snapshot_create_command},
        {"restore", "run a command in a clone of a saved VM", snapshot_restore_command},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl snapshot", NULL, snapshot_commands};

int command_snapshot(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
