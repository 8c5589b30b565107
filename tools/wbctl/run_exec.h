/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command of `wbctl run`, in a VM that has been activated. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/options.h"

struct run_exec {
        const char *vsock_path; /* hybrid */
        char **argv;
        size_t argv_n;
        const struct option_strings *env;     /* NAME=VALUE */
        const struct option_strings *secrets; /* NAME=..., of the activation: each becomes NAME_FILE */
        uint64_t timeout_ms;                  /* 0: none */
        bool terminal;
        bool has_stdin; /* what session_prepare() said */
};

/* Answers the exit status of INTERFACES.md; what is to be said has been said on stderr. */
int run_exec(const struct run_exec *x);
