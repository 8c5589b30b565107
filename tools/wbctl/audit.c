/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/command.h"

static const struct command commands[] = {
        {"query", "search the log, its rotated files too", audit_query},
        {"replay", "what another policy would have decided", audit_replay},
        {"report", "an HTML page: is the log whole, and what each VM did", audit_report},
        {"tail", "show the log's end, and follow it", audit_tail},
        {"verify", "is the log whole and unaltered?", audit_verify},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl audit", NULL, commands};

int command_audit(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
