/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image verify: is an image what the owner of a key signed? */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/image_check.h"
#include "tools/wbctl/image_command.h"
#include "tools/wbctl/printable.h"

struct verify_options {
        struct option_strings keys;
        bool json;
};

static const struct option_spec specs[] = {
        {"key", 0, OPTION_STRINGS, offsetof(struct verify_options, keys), "PUB",
                "a public key (PEM) that is believed; absent: WB_IMAGE_KEY, files with colons between them"},
        {"json", 0, OPTION_FLAG, offsetof(struct verify_options, json), NULL, "JSON instead of text"},
};

static const struct option_table table = {
        .usage = "wbctl image verify [--key PUB]... [--json] DIR",
        .summary = "Is an image whole, and signed by one of the keys? Exit 0 yes, 1 no.",
        .example = "wbctl image verify --key ~/image.key.pub /srv/images/work",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

static json_t *flaws_json(const struct image_check *check)
{
        json_t *array = json_array();

        for (size_t i = 0; i < check->flaws_n; i++) {
                char name[IMAGE_FLAW_NAME_BYTES];
                json_t *file;

                printable(check->flaws[i].name, name, sizeof(name));
                file = json_string(name); /* NULL for what is no UTF-8 either */
                (void)json_array_append_new(array, json_pack("{s:o, s:s}", "file", file ? file : json_string("?"),
                                                           "flaw", image_flaw_name(check->flaws[i].kind)));
        }
        return array;
}

/* The names are null where nothing that was signed says them. */
static int print_json(const struct image_check *check, const char *directory)
{
        bool is_signed = check->result == IMAGE_CHECK_WHOLE || check->result == IMAGE_CHECK_ALTERED;
        char key[SHA256_TEXT_BYTES];
        json_t *root;
        int r;

        sha256_text(check->manifest.key, key);
        root = json_pack("{s:b, s:s, s:s, s:s?, s:s?, s:s?, s:o, s:b}", "ok", check->result == IMAGE_CHECK_WHOLE,
                "result", image_check_name(check->result), "directory", directory, "name",
                is_signed ? check->manifest.name : NULL, "agent", is_signed ? check->manifest.agent : NULL, "key",
                is_signed ? key : NULL, "flaws", flaws_json(check), "more_flaws", check->flaws_more);
        r = root ? json_dumpf(root, stdout, JSON_INDENT(2)) : -1;
        json_decref(root);
        if (r < 0)
                return EXIT_FAILED;
        putchar('\n');
        return 0;
}

static int verify(const struct image_keys *keys, const char *directory, bool json)
{
        struct image_check check;
        int r = image_check(directory, keys, NULL, &check);

        if (r < 0) {
                fprintf(stderr, "wbctl: image verify: %s: %s\n", directory, strerror(-r));
                return EXIT_USAGE;
        }
        if (json && print_json(&check, directory) != 0)
                return EXIT_FAILED;
        if (!json)
                image_check_print(&check, directory, "", stdout);
        return check.result == IMAGE_CHECK_WHOLE ? 0 : EXIT_NO;
}

static int verify_with(const struct verify_options *o, char **rest, size_t rest_n)
{
        struct image_keys keys;
        int r;

        if (rest_n != 1)
                return options_usage_error(&table, rest_n ? "one image at a time" : "which image?");
        if (image_keys_load(&o->keys, &keys) < 0)
                return EXIT_USAGE;
        r = keys.n > 0 ? verify(&keys, rest[0], o->json)
                       : options_usage_error(&table, "whose signature? --key PUB, or WB_IMAGE_KEY");
        image_keys_done(&keys);
        return r;
}

int image_verify_command(int argc, char **argv)
{
        struct verify_options options = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0)
                r = verify_with(&options, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = EXIT_FAILED;
        option_strings_done(&options.keys);
        return r;
}
