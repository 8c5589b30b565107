/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The frame of a command that speaks with one guest: options, arguments, target, and what becomes wbctl's exit status.
 */

#include <stddef.h>

#include "proto/base/options.h"
#include "tools/wbctl/target.h"

struct guest_command {
        const struct option_table *table;
        size_t target_offset; /* of the struct target_options in the command's options */
        size_t args_least;
        size_t args_most;
        const char *args_wanted; /* "one ID is needed": said when there are fewer or more; NULL where none are taken */

        /* options as passed to guest_command_run(), parsed. Answers an exit status, or a negative errno for
         * EXIT_FAILED. */
        int (*run)(void *options, const struct target *target, char **args, size_t args_n);
};

/* options holds the defaults, and stays the caller's. */
int guest_command_run(const struct guest_command *c, int argc, char **argv, void *options);
