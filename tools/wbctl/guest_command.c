/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/guest_command.h"

#include "tools/wbctl/command.h"

static int check_args(const struct guest_command *c, char **args, size_t n)
{
        if (n >= c->args_least && n <= c->args_most)
                return 0;
        if (c->args_wanted)
                return options_usage_error(c->table, "%s", c->args_wanted);
        return options_usage_error(c->table, "'%s' is one argument too many", args[c->args_most]);
}

int guest_command_run(const struct guest_command *c, int argc, char **argv, void *options)
{
        struct target target = {0};
        size_t args_n = 0;
        char **args = NULL;
        int r = options_parse(c->table, argc, argv, options, &args, &args_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0)
                r = check_args(c, args, args_n);
        if (r == 0)
                r = target_resolve(
                        c->table, (const struct target_options *)((char *)options + c->target_offset), &target);
        if (r == 0)
                r = c->run(options, &target, args, args_n);
        target_done(&target);
        return r < 0 ? EXIT_FAILED : r;
}
