/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/options.h"

#include "proto/base/options.h"

#define DRAIN_DEFAULT_S 10u
#define DRAIN_MAX_S     86400u

static const struct option_spec specs[] = {
        {"config", 'c', OPTION_STRING, offsetof(struct broker_options, config), "FILE", "the configuration (YAML)"},
        {"check", 0, OPTION_FLAG, offsetof(struct broker_options, check), NULL,
                "validate it and the policies that it names; exit 0 or 2"},
        {"drain-s", 0, OPTION_U64, offsetof(struct broker_options, drain_s), "SECONDS",
                "how long connections may go on after SIGTERM (10)"},
        {"version", 0, OPTION_FLAG, offsetof(struct broker_options, version), NULL, "print the version"},
};

static const struct option_table table = {
        .usage = "wbbroker --config FILE [--check] [--drain-s SECONDS]",
        .summary =
                "Terminates the vsock egress of virtual machines, decides by policy, relays, and records what it decided.",
        .example = "wbbroker --config /etc/wbbroker/wbbroker.yaml --check",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
};

int broker_options_parse(int argc, char **argv, struct broker_options *ret)
{
        struct broker_options options = {.drain_s = DRAIN_DEFAULT_S};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r != 0)
                return r;
        if (rest_n)
                return options_usage_error(&table, "unexpected argument '%s'", rest[0]);
        if (!options.config && !options.version)
                return options_usage_error(&table, "--config is missing");
        if (options.drain_s > DRAIN_MAX_S)
                return options_usage_error(&table, "--drain-s is at most %u", DRAIN_MAX_S);
        *ret = options;
        return 0;
}
