/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image build | ls: guest images for `wbctl run`. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/run_image.h"

#define BUILD_ARGUMENTS_MAX 60
#define IMAGES_MAX          256

/* ---- build */

struct build_options {
        struct option_strings programs;
        struct option_strings authorities;
        const char *out;
        bool update;
};

static const struct option_spec build_specs[] = {
        {"program", 0, OPTION_STRINGS, offsetof(struct build_options, programs), "NAME",
                "a program of this machine, with its libraries"},
        {"ca", 0, OPTION_STRINGS, offsetof(struct build_options, authorities), "FILE",
                "a certificate that the guest trusts beside the distribution's"},
        {"out", 0, OPTION_STRING, offsetof(struct build_options, out), "DIR",
                "write the image there, not to the cache"},
        {"update", 0, OPTION_FLAG, offsetof(struct build_options, update), NULL,
                "take the distribution's newest kernel"},
};

static const struct option_table build_table = {
        .usage = "wbctl image build [--program NAME]... [--ca FILE]... [--out DIR] [--update]",
        .summary = "Builds a guest image from this machine's distribution and prints its directory.",
        .example = "wbctl image build --program git --program python3 --out /srv/images/work",
        .specs = build_specs,
        .specs_n = sizeof(build_specs) / sizeof(build_specs[0]),
};

static int build_with(const struct build_options *options)
{
        _cleanup_free_ char *directory = NULL;
        const char *arguments[BUILD_ARGUMENTS_MAX + 1];
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
        if (image_build(arguments, &directory) < 0)
                return EXIT_FAILED;
        printf("%s\n", directory);
        return 0;
}

static int image_build_command(int argc, char **argv)
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

/* ---- ls */

struct ls_options {
        bool json;
};

static const struct option_spec ls_specs[] = {
        {"json", 0, OPTION_FLAG, offsetof(struct ls_options, json), NULL, "for a machine"},
};

static const struct option_table ls_table = {
        .usage = "wbctl image ls [--json]",
        .summary = "Lists the images in the cache; the one used last comes first.",
        .example = "wbctl image ls",
        .specs = ls_specs,
        .specs_n = sizeof(ls_specs) / sizeof(ls_specs[0]),
};

struct listed {
        char *directory;
        uint64_t bytes;
        uint64_t used_ns;
};

static uint64_t file_bytes(const char *directory, const char *name)
{
        _cleanup_free_ char *path = NULL;
        struct stat st;

        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                return 0;
        }
        return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_size;
}

static int by_use(const void *a, const void *b)
{
        const struct listed *left = a;
        const struct listed *right = b;

        return (left->used_ns < right->used_ns) - (left->used_ns > right->used_ns);
}

/* At most IMAGES_MAX; the caller frees the directories. 0 or a negative errno. */
static int list_images(struct listed *images, size_t *ret_n)
{
        _cleanup_free_ char *cache = NULL;
        size_t n = 0;
        int r = image_cache(&cache);

        if (r < 0)
                return r;

        DIR *dir = opendir(cache);

        if (!dir && errno != ENOENT)
                return -errno;
        for (struct dirent *entry; dir && n < IMAGES_MAX && (entry = readdir(dir));) {
                struct listed image = {0};
                struct stat st;

                if (entry->d_name[0] == '.' || asprintf(&image.directory, "%s/%s", cache, entry->d_name) < 0)
                        continue;
                image.bytes = file_bytes(image.directory, "kernel") + file_bytes(image.directory, "initrd");
                if (stat(image.directory, &st) == 0)
                        image.used_ns = (uint64_t)st.st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_mtim.tv_nsec;
                images[n++] = image;
        }
        if (dir)
                (void)closedir(dir);
        qsort(images, n, sizeof(*images), by_use);
        *ret_n = n;
        return 0;
}

static void print_table(const struct listed *images, size_t n)
{
        printf("%-20s %8s  %s\n", "USED", "SIZE", "IMAGE");
        for (size_t i = 0; i < n; i++) {
                char text[CLOCK_TEXT_BYTES];

                clock_format(images[i].used_ns, text);
                text[19] = '\0'; /* to the second */
                printf("%-20s %6lluM  %s\n", text, (unsigned long long)(images[i].bytes >> 20), images[i].directory);
        }
}

static int print_json(const struct listed *images, size_t n)
{
        json_t *array = json_array();
        int r = array ? 0 : -1;

        for (size_t i = 0; r == 0 && i < n; i++) {
                char text[CLOCK_TEXT_BYTES];

                clock_format(images[i].used_ns, text);
                r = json_array_append_new(array, json_pack("{s:s, s:I, s:s}", "directory", images[i].directory, "bytes",
                                                         (json_int_t)images[i].bytes, "used", text));
        }
        if (r == 0)
                r = json_dumpf(array, stdout, JSON_INDENT(2));
        json_decref(array);
        if (r < 0)
                return EXIT_FAILED;
        putchar('\n');
        return 0;
}

static int image_ls_command(int argc, char **argv)
{
        struct ls_options options = {0};
        struct listed images[IMAGES_MAX];
        char **rest;
        size_t rest_n;
        size_t n = 0;
        int r = options_parse(&ls_table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n > 0)
                r = options_usage_error(&ls_table, "unexpected argument '%s'", rest[0]);
        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r < 0 ? EXIT_FAILED : r;
        r = list_images(images, &n);
        if (r < 0) {
                fprintf(stderr, "wbctl: image ls: %s\n", strerror(-r));
                return EXIT_FAILED;
        }
        if (options.json)
                r = print_json(images, n);
        else
                print_table(images, n);
        for (size_t i = 0; i < n; i++)
                free(images[i].directory);
        return r;
}

static const struct command image_commands[] = {
        {"build", "build a guest image from this machine's distribution", image_build_command},
        {"ls", "list the images in the cache", image_ls_command},
        {NULL, NULL, NULL},
};

static void print_usage(FILE *to)
{
        fprintf(to, "usage: wbctl image COMMAND [ARGUMENT]...\n\ncommands:\n");
        for (const struct command *c = image_commands; c->name; c++)
                fprintf(to, "  %-10s %s\n", c->name, c->summary);
        fprintf(to, "\nexample: wbctl image ls\n");
}

int command_image(int argc, char **argv)
{
        if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
                print_usage(stdout);
                return 0;
        }
        for (const struct command *c = image_commands; argc >= 2 && c->name; c++)
                if (strcmp(argv[1], c->name) == 0)
                        return c->run(argc - 1, argv + 1);
        print_usage(stderr);
        return EXIT_USAGE;
}
