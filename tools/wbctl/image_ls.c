/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl image ls: the images in the cache. */
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
#include "tools/wbctl/image_check.h"
#include "tools/wbctl/image_command.h"
#include "tools/wbctl/run_image.h"

#define IMAGES_MAX 256

struct ls_options {
        struct option_strings keys;
        bool json;
};

static const struct option_spec ls_specs[] = {
        {"key", 0, OPTION_STRINGS, offsetof(struct ls_options, keys), "PUB",
                "verify each image with a public key; absent: WB_IMAGE_KEY, else only say which key a manifest names"},
        {"json", 0, OPTION_FLAG, offsetof(struct ls_options, json), NULL, "JSON instead of text"},
};

static const struct option_table ls_table = {
        .usage = "wbctl image ls [--key PUB]... [--json]",
        .summary = "Lists the images in the cache; the one used last comes first.",
        .example = "wbctl image ls",
        .specs = ls_specs,
        .specs_n = sizeof(ls_specs) / sizeof(ls_specs[0]),
};

struct listed {
        char *directory;
        uint64_t bytes;
        uint64_t used_ns;
        enum image_check_result result; /* without keys: UNSIGNED, or OTHER_KEY for what the manifest says */
        char key[SHA256_TEXT_BYTES];    /* that the manifest names; empty if there is none */
};

#define KEY_SHOWN 16 /* digits of a fingerprint */

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

static void look_at_signature(struct listed *image, const struct image_keys *keys)
{
        struct image_check check;

        image->result = IMAGE_CHECK_UNSIGNED;
        if (image_check(image->directory, keys, NULL, &check) < 0)
                return;
        image->result = check.result;
        if (check.manifest.files_n > 0)
                sha256_text(check.manifest.key, image->key);
}

static int by_use(const void *a, const void *b)
{
        const struct listed *left = a;
        const struct listed *right = b;

        return (left->used_ns < right->used_ns) - (left->used_ns > right->used_ns);
}

/* At most IMAGES_MAX; the caller frees the directories. 0 or a negative errno. */
static int list_images(const struct image_keys *keys, struct listed *images, size_t *ret_n)
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
                look_at_signature(&image, keys);
                images[n++] = image;
        }
        if (dir)
                (void)closedir(dir);
        qsort(images, n, sizeof(*images), by_use);
        *ret_n = n;
        return 0;
}

static void print_table(const struct listed *images, size_t n, bool verified)
{
        int width = verified ? 33 : KEY_SHOWN; /* a key's digits, and the longest result */

        printf("%-20s %8s  %-*s  %s\n", "USED", "SIZE", width, "SIGNED", "IMAGE");
        for (size_t i = 0; i < n; i++) {
                const struct listed *image = &images[i];
                char text[CLOCK_TEXT_BYTES];
                char by[64];

                clock_format(image->used_ns, text);
                text[19] = '\0'; /* to the second */
                (void)snprintf(by, sizeof(by), "%.*s%s%s", KEY_SHOWN, image->key, image->key[0] && verified ? " " : "",
                        verified        ? image_check_name(image->result)
                        : image->key[0] ? ""
                                        : "-");
                printf("%-20s %7lluM  %-*s  %s\n", text, (unsigned long long)(image->bytes >> 20), width, by,
                        image->directory);
        }
}

static json_t *image_json(const struct listed *image, bool verified)
{
        char text[CLOCK_TEXT_BYTES];

        clock_format(image->used_ns, text);
        return json_pack("{s:s, s:I, s:s, s:s?, s:s?}", "directory", image->directory, "bytes",
                (json_int_t)image->bytes, "used", text, "key", image->key[0] ? image->key : NULL, "result",
                verified ? image_check_name(image->result) : NULL);
}

static int print_json(const struct listed *images, size_t n, bool verified)
{
        json_t *array = json_array();
        int r = array ? 0 : -1;

        for (size_t i = 0; r == 0 && i < n; i++)
                r = json_array_append_new(array, image_json(&images[i], verified));
        if (r == 0)
                r = json_dumpf(array, stdout, JSON_INDENT(2));
        json_decref(array);
        if (r < 0)
                return EXIT_FAILED;
        putchar('\n');
        return 0;
}

static int ls(const struct image_keys *keys, bool json)
{
        struct listed images[IMAGES_MAX];
        size_t n = 0;
        int r = list_images(keys, images, &n);

        if (r < 0) {
                fprintf(stderr, "wbctl: image ls: %s\n", strerror(-r));
                return EXIT_FAILED;
        }
        if (json)
                r = print_json(images, n, keys->n > 0);
        else
                print_table(images, n, keys->n > 0);
        for (size_t i = 0; i < n; i++)
                free(images[i].directory);
        return r;
}

static int ls_with(const struct ls_options *o)
{
        struct image_keys keys;
        int r;

        if (image_keys_load(&o->keys, &keys) < 0)
                return EXIT_USAGE;
        r = ls(&keys, o->json);
        image_keys_done(&keys);
        return r;
}

int image_ls_command(int argc, char **argv)
{
        struct ls_options options = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&ls_table, argc, argv, &options, &rest, &rest_n);

        if (r == 0 && rest_n > 0)
                r = options_usage_error(&ls_table, "unexpected argument '%s'", rest[0]);
        if (r == 0)
                r = ls_with(&options);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = EXIT_FAILED;
        option_strings_done(&options.keys);
        return r;
}
