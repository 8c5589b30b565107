/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image build: an image from this machine's distribution. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/image_command.h"
#include "tools/wbctl/image_sign.h"
#include "tools/wbctl/run_image.h"

#define BUILD_ARGUMENTS_MAX 60

struct build_options {
        struct option_strings programs;
        struct option_strings authorities;
        const char *out;
        bool update;
        const char *sign;
};

static const struct option_spec build_specs[] = {
        {"program", 0, OPTION_STRINGS, offsetof(struct build_options, programs), "NAME",
                "a program of this machine, with its libraries (repeatable)"},
        {"ca", 0, OPTION_STRINGS, offsetof(struct build_options, authorities), "FILE",
                "a certificate that the guest trusts beside the distribution's (repeatable)"},
        {"out", 0, OPTION_STRING, offsetof(struct build_options, out), "DIR",
                "write the image there, not to the cache"},
        {"update", 0, OPTION_FLAG, offsetof(struct build_options, update), NULL,
                "take the distribution's newest kernel"},
        {"sign", 0, OPTION_STRING, offsetof(struct build_options, sign), "KEY",
                "sign it with the private key in a file, as image sign does"},
};

static const struct option_table build_table = {
        .usage = "wbctl image build [--program NAME]... [--ca FILE]... [--out DIR] [--update] [--sign KEY]",
        .summary = "Builds a guest image from this machine's distribution and prints its directory.",
        .example = "wbctl image build --program git --program python3 --out /srv/images/work",
        .specs = build_specs,
        .specs_n = sizeof(build_specs) / sizeof(build_specs[0]),
};

static int collect_arguments(const struct build_options *options, const char *arguments[BUILD_ARGUMENTS_MAX + 1])
{
        size_t n = 0;

        if (2 * (options->programs.n + options->authorities.n) + 3 > BUILD_ARGUMENTS_MAX) {
                fprintf(stderr, "wbctl: image build: too many --program and --ca\n");
                return EXIT_USAGE;
        }
        for (size_t i = 0; i < options->programs.n; i++) {
                arguments[n++] = "--program";
                arguments[n++] = options->programs.items[i];
        }
        for (size_t i = 0; i < options->authorities.n; i++) {
                arguments[n++] = "--ca";
                arguments[n++] = options->authorities.items[i];
        }
        if (options->out) {
                arguments[n++] = "--out";
                arguments[n++] = options->out;
        }
        if (options->update)
                arguments[n++] = "--update";
        arguments[n] = NULL;
        return 0;
}

static int build_with(const struct build_options *options)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        _cleanup_free_ char *directory = NULL;
        const char *arguments[BUILD_ARGUMENTS_MAX + 1];
        int r = collect_arguments(options, arguments);

        if (r != 0)
                return r;
        /* A key that cannot be had is known before the minute of building. */
        if (options->sign && image_keys_open_private(options->sign, &key) < 0)
                return EXIT_USAGE;
        if (image_build(arguments, &directory) < 0)
                return EXIT_FAILED;
        if (key && (r = image_sign(directory, NULL, key)) != 0)
                return r;
        printf("%s\n", directory);
        return 0;
}

int image_build_command(int argc, char **argv)
{
        struct build_options options = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&build_table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n > 0)
                r = options_usage_error(&build_table, "unexpected argument '%s'", rest[0]);
        if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = EXIT_FAILED;
        else if (r == 0)
                r = build_with(&options);
        option_strings_done(&options.programs);
        option_strings_done(&options.authorities);
        return r;
}
