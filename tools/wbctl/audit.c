/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/command.h"

static const struct command commands[] = {
        {"query", "the records that were looked for", audit_query},
        {"replay", "what another policy would have decided", audit_replay},
        {"report", "an HTML page", audit_report},
        {"tail", "the last records, and those to come", audit_tail},
        {"verify", "is the log whole and unaltered?", audit_verify},
};

static const struct option_table table = {
        .usage = "wbctl audit verify|tail|query|replay|report [OPTION]...",
        .summary = "The broker's audit log: verify says whether it is whole and unaltered, tail shows its end, query\n"
                   "searches it, replay says what another policy would have decided, report makes an HTML page.",
        .example = "wbctl audit verify --key audit.pub",
};

int command_audit(int argc, char **argv)
{
        bool none = false;
        size_t rest_n;
        char **rest;

        for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        if (options_parse(&table, argc, argv, &none, &rest, &rest_n) == OPTIONS_E_HELP)
                return 0;
        return options_usage_error(&table, "the command is verify, tail, query, replay or report");
}
