/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wbbroker's command line. */

#include <stdbool.h>
#include <stdint.h>

struct broker_options {
        const char *config; /* argv's */
        bool check;
        bool version;
        uint64_t drain_s;
};

/* 0, OPTIONS_E_HELP or OPTIONS_E_USAGE (proto/base/options.h), or -ENOMEM. */
int broker_options_parse(int argc, char **argv, struct broker_options *ret);
