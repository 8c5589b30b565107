/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/command.h"

static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
} commands[] = {
        {"query", audit_query},
        {"replay", audit_replay},
        {"report", audit_report},
        {"tail", audit_tail},
        {"verify", audit_verify},
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
        int r;

        for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        r = options_parse(&table, argc, argv, &none, &rest, &rest_n);
        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0)
                (void)options_usage_error(&table,
                        rest_n ? "'%s' is no command of audit" : "verify, tail, query, replay or report is wanted%s",
                        rest_n ? rest[0] : "");
        return EXIT_USAGE;
}
