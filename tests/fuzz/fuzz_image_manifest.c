/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an image's manifest: what is accepted has one form, and every name in it stays in the directory. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/wbctl/image_manifest.h"

static void check_accepted(const struct image_manifest *m, const uint8_t *data, size_t n)
{
        static char text[IMAGE_MANIFEST_MAX_BYTES];

        MUST(image_manifest_is_word(m->name) && image_manifest_is_word(m->agent));
        for (size_t i = 0; i < m->files_n; i++) {
                MUST(image_manifest_is_file(m->files[i].name) && !strchr(m->files[i].name, '/'));
                MUST(image_manifest_find(m, m->files[i].name) == &m->files[i]);
                MUST(i == 0 || strcmp(m->files[i - 1].name, m->files[i].name) < 0);
        }
        MUST(image_manifest_find(m, "kernel") && image_manifest_find(m, "initrd") && image_manifest_find(m, "cmdline"));
        MUST(image_manifest_format(m, text) == n && memcmp(text, data, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static struct image_manifest m;
        struct image_manifest_error error = {0};
        int r = image_manifest_parse((const char *)data, n, &m, &error);

        MUST(r == 0 || (r == IMAGE_MANIFEST_E_INVALID && error.reason));
        if (r == 0)
                check_accepted(&m, data, n);
        return 0;
}
