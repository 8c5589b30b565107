/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_manifest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/suite.h"

#define D       "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define HEAD    "wb-image 1 name=work agent=0.1.0 key=" D "\n"
#define CMDLINE D "  14  cmdline\n"
#define INITRD  D "  100000  initrd\n"
#define KERNEL  D "  9223372036854775807  kernel\n"
#define WHOLE   HEAD CMDLINE INITRD KERNEL

static struct image_manifest manifest;

static int parse_n(const char *text, size_t n, struct image_manifest_error *error)
{
        *error = (struct image_manifest_error){.line = 999};
        return image_manifest_parse(text, n, &manifest, error);
}

/* The line that is complained of; 999: none. */
static size_t bad_line(const char *text)
{
        struct image_manifest_error error;
        int r = parse_n(text, strlen(text), &error);

        CU_ASSERT(r == 0 || (r == IMAGE_MANIFEST_E_INVALID && error.reason != NULL));
        return error.line;
}

static void test_a_manifest_is_read(void)
{
        struct image_manifest_error error;
        uint8_t digest[SHA256_BYTES];

        CU_ASSERT_FATAL(parse_n(WHOLE, strlen(WHOLE), &error) == 0);
        CU_ASSERT_FATAL(sha256_bytes("abc", 3, digest) == 0);
        CU_ASSERT_STRING_EQUAL(manifest.name, "work");
        CU_ASSERT_STRING_EQUAL(manifest.agent, "0.1.0");
        CU_ASSERT(memcmp(manifest.key, digest, sizeof(digest)) == 0);
        CU_ASSERT_EQUAL(manifest.files_n, 3);
        CU_ASSERT_STRING_EQUAL(manifest.files[0].name, "cmdline");
        CU_ASSERT(manifest.files[1].bytes == 100000 && manifest.files[2].bytes == INT64_MAX);
        CU_ASSERT(memcmp(manifest.files[2].digest, digest, sizeof(digest)) == 0);
        CU_ASSERT_PTR_EQUAL(image_manifest_find(&manifest, "kernel"), &manifest.files[2]);
        CU_ASSERT_PTR_NULL(image_manifest_find(&manifest, "kerne"));
        CU_ASSERT_PTR_NULL(image_manifest_find(&manifest, "zzz"));
}

static void test_what_fails_leaves_the_answer_alone(void)
{
        struct image_manifest_error error;

        memset(&manifest, 0x55, sizeof(manifest));
        CU_ASSERT(parse_n(HEAD CMDLINE INITRD, strlen(HEAD CMDLINE INITRD), &error) == IMAGE_MANIFEST_E_INVALID);
        CU_ASSERT(manifest.name[0] == 0x55 && manifest.files_n == (size_t)0x5555555555555555);
}

static void test_the_head_is_strict(void)
{
        static const char *const heads[] = {
                "",
                "\n",
                "wb-image 1",
                "wb-image 1\n",
                "wb-image 2 name=work agent=0.1.0 key=" D "\n",
                "wb-image 10 name=work agent=0.1.0 key=" D "\n",
                "wb-image  1 name=work agent=0.1.0 key=" D "\n",
                "wb-image 1 name= agent=0.1.0 key=" D "\n",
                "wb-image 1 name=a/b agent=0.1.0 key=" D "\n",
                "wb-image 1 name=work agent= key=" D "\n",
                "wb-image 1 name=work agent=0.1.0 key=\n",
                "wb-image 1 name=work agent=0.1.0 key=" D "0\n",
                "wb-image 1 name=work agent=0.1.0 key=" D " \n",
                "wb-image 1 name=work agent=0.1.0 key=" D "\r\n",
                "wb-image 1 agent=0.1.0 name=work key=" D "\n",
                "wb-image 1 name=work agent=0.1.0 key=" D,
                "\xef\xbb\xbf" HEAD,
                " " HEAD,
                "#\n" HEAD,
        };

        for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
                char text[1024];

                (void)snprintf(text, sizeof(text), "%s%s", heads[i], CMDLINE INITRD KERNEL);
                CU_ASSERT_EQUAL(bad_line(text), 1);
        }
}

static void test_lines_are_strict(void)
{
        static const char *const lines[] = {
                "\n",
                " \n",
                D "  1  \n",
                D "  1  a\r\n",
                D "  1  a",
                D "  1  a \n",
                D "  1  a b\n",
                D " 1  a\n",
                D "   1  a\n",
                D "  1 a\n",
                D "  1   a\n",
                D "\t\t1  a\n",
                D "  01  a\n",
                D "  00  a\n",
                D "  -1  a\n",
                D "  +1  a\n",
                D "  0x1  a\n",
                D "    a\n",
                D "  9223372036854775808  a\n",
                D "  18446744073709551617  a\n",
                D "  99999999999999999999999999999999  a\n",
                "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  1  a\n",
                "a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  1  a\n",
                "0" D "  1  a\n",
                D "  1  ../a\n",
                D "  1  ..\n",
                D "  1  .\n",
                D "  1  /a\n",
                D "  1  a/b\n",
                D "  1  manifest\n",
                D "  1  manifest.sig\n",
                D "  1  a\x01\n",
                D "  1  a\x7f\n",
                D "  1  \xc3\xa4\n",
                "# " D "  1  a\n",
        };

        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                char text[1024];

                (void)snprintf(text, sizeof(text), "%s%s", HEAD, lines[i]);
                CU_ASSERT_EQUAL(bad_line(text), 2);
        }
        CU_ASSERT_EQUAL(bad_line(HEAD D "  0  a\n" D "  1  b..\n" CMDLINE INITRD KERNEL), 999);
}

static void test_a_nul_ends_nothing(void)
{
        static const char text[] = WHOLE "\0";
        static const char inside[] = HEAD D "  1  a\0b\n" CMDLINE INITRD KERNEL;
        struct image_manifest_error error;

        CU_ASSERT(parse_n(text, sizeof(text) - 1, &error) == IMAGE_MANIFEST_E_INVALID && error.line == 5);
        CU_ASSERT(parse_n(inside, sizeof(inside) - 1, &error) == IMAGE_MANIFEST_E_INVALID && error.line == 2);
}

static void test_every_prefix_is_refused(void)
{
        struct image_manifest_error error;

        for (size_t n = 0; n < strlen(WHOLE); n++)
                CU_ASSERT(parse_n(WHOLE, n, &error) == IMAGE_MANIFEST_E_INVALID);
}

static void test_files_are_in_order_and_once(void)
{
        CU_ASSERT_EQUAL(bad_line(HEAD INITRD CMDLINE KERNEL), 3);
        CU_ASSERT_EQUAL(bad_line(HEAD CMDLINE CMDLINE INITRD KERNEL), 3);
        CU_ASSERT_EQUAL(bad_line(HEAD CMDLINE INITRD KERNEL KERNEL), 5);
        CU_ASSERT_EQUAL(bad_line(HEAD CMDLINE INITRD KERNEL D "  1  b\n"), 5);
        CU_ASSERT_EQUAL(bad_line(HEAD D "  1  B\n" D "  1  a\n" CMDLINE INITRD KERNEL), 999); /* as bytes */
}

static void test_an_image_has_kernel_initrd_and_cmdline(void)
{
        CU_ASSERT_EQUAL(bad_line(HEAD), 0);
        CU_ASSERT_EQUAL(bad_line(HEAD INITRD KERNEL), 0);
        CU_ASSERT_EQUAL(bad_line(HEAD CMDLINE KERNEL), 0);
        CU_ASSERT_EQUAL(bad_line(HEAD CMDLINE INITRD), 0);
}

static void test_it_is_bounded(void)
{
        static char text[4 * IMAGE_MANIFEST_MAX_BYTES];
        size_t n = (size_t)snprintf(text, sizeof(text), "%s", HEAD);
        struct image_manifest_error error;

        for (unsigned i = 0; i < IMAGE_MANIFEST_FILES_MAX + 1; i++)
                n += (size_t)snprintf(text + n, sizeof(text) - n, D "  1  a%03u\n", i);
        CU_ASSERT(parse_n(text, n, &error) == IMAGE_MANIFEST_E_INVALID);
        CU_ASSERT_EQUAL(error.line, 1 + IMAGE_MANIFEST_FILES_MAX + 1);
        memset(text, 'a', sizeof(text));
        CU_ASSERT(parse_n(text, sizeof(text), &error) == IMAGE_MANIFEST_E_INVALID && error.line == 0);
        memcpy(text, WHOLE, strlen(WHOLE));
        CU_ASSERT(parse_n(text, sizeof(text), &error) == IMAGE_MANIFEST_E_INVALID && error.line == 0);
}

static void test_the_longest_names(void)
{
        char word[2 * IMAGE_MANIFEST_WORD_BYTES] = {0}, name[2 * IMAGE_MANIFEST_NAME_BYTES] = {0};

        memset(word, 'w', IMAGE_MANIFEST_WORD_BYTES - 1);
        memset(name, 'n', IMAGE_MANIFEST_NAME_BYTES - 1);
        CU_ASSERT(image_manifest_is_word(word) && image_manifest_is_file(name));
        word[IMAGE_MANIFEST_WORD_BYTES - 1] = 'w';
        name[IMAGE_MANIFEST_NAME_BYTES - 1] = 'n';
        CU_ASSERT(!image_manifest_is_word(word) && !image_manifest_is_file(name));
        CU_ASSERT(!image_manifest_is_word("") && !image_manifest_is_file(""));
        CU_ASSERT(!image_manifest_is_word("a b") && !image_manifest_is_file("a b"));
        CU_ASSERT(image_manifest_is_word("-") && image_manifest_is_file(".hidden") && image_manifest_is_file("..."));
}

static struct image_manifest_file file_named(const char *name)
{
        struct image_manifest_file file = {.bytes = 7};

        (void)snprintf(file.name, sizeof(file.name), "%s", name);
        return file;
}

static int add(struct image_manifest *m, const char *name)
{
        struct image_manifest_file file = file_named(name);

        return image_manifest_add(m, &file);
}

static void test_the_same_content_has_the_same_bytes(void)
{
        static const char *const orders[][4] = {
                {"kernel", "initrd", "cmdline", "agent"},
                {"agent", "cmdline", "initrd", "kernel"},
                {"initrd", "agent", "kernel", "cmdline"},
        };
        static char texts[3][IMAGE_MANIFEST_MAX_BYTES];
        static char text[IMAGE_MANIFEST_MAX_BYTES];
        size_t n[3];

        for (size_t i = 0; i < 3; i++) {
                struct image_manifest_error error;
                struct image_manifest m = {.name = "n", .agent = "-"};

                for (size_t k = 0; k < 4; k++)
                        CU_ASSERT(add(&m, orders[i][k]) == 0);
                CU_ASSERT(add(&m, "initrd") == -EEXIST);
                CU_ASSERT(add(&m, "a/b") == -EINVAL);
                n[i] = image_manifest_format(&m, texts[i]);
                CU_ASSERT(n[i] == n[0] && memcmp(texts[i], texts[0], n[0]) == 0);
                CU_ASSERT(parse_n(texts[i], n[i], &error) == 0);
                CU_ASSERT(image_manifest_format(&manifest, text) == n[i] && memcmp(text, texts[i], n[i]) == 0);
        }
}

static void test_the_fullest_manifest_has_room(void)
{
        static char text[IMAGE_MANIFEST_MAX_BYTES], again[IMAGE_MANIFEST_MAX_BYTES];
        struct image_manifest m = {0};
        struct image_manifest_error error;
        size_t n;

        memset(m.name, 'n', sizeof(m.name) - 1);
        memset(m.agent, 'a', sizeof(m.agent) - 1);
        CU_ASSERT(add(&m, "cmdline") == 0 && add(&m, "initrd") == 0 && add(&m, "kernel") == 0);
        for (unsigned i = 3; i < IMAGE_MANIFEST_FILES_MAX; i++) {
                struct image_manifest_file file = {.bytes = INT64_MAX};

                memset(file.name, 'z', sizeof(file.name) - 1);
                file.name[0] = (char)('0' + i / 10);
                file.name[1] = (char)('0' + i % 10);
                CU_ASSERT(image_manifest_add(&m, &file) == 0);
        }
        CU_ASSERT(add(&m, "zz") == -E2BIG);
        n = image_manifest_format(&m, text);
        CU_ASSERT(parse_n(text, n, &error) == 0 && manifest.files_n == IMAGE_MANIFEST_FILES_MAX);
        CU_ASSERT(image_manifest_format(&manifest, again) == n && memcmp(text, again, n) == 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a manifest is read", test_a_manifest_is_read},
                {"what fails leaves the answer alone", test_what_fails_leaves_the_answer_alone},
                {"the head is strict", test_the_head_is_strict},
                {"lines are strict", test_lines_are_strict},
                {"a NUL ends nothing", test_a_nul_ends_nothing},
                {"every prefix is refused", test_every_prefix_is_refused},
                {"files are in order and once", test_files_are_in_order_and_once},
                {"an image has kernel, initrd and cmdline", test_an_image_has_kernel_initrd_and_cmdline},
                {"it is bounded", test_it_is_bounded},
                {"the longest names", test_the_longest_names},
                {"the same content has the same bytes", test_the_same_content_has_the_same_bytes},
                {"the fullest manifest has room", test_the_fullest_manifest_has_room},
                CU_TEST_INFO_NULL,
        };

        return suite_run("image_manifest", tests);
}
