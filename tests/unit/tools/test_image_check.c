/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/image_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tests/support/suite.h"

#define KERNEL "the kernel's bytes"

/* A signed image in a directory of its own, for one test. */
struct world {
        char path[64];
        int dir_fd;
        struct p256_key *key;
        struct image_keys keys; /* the one above */
};

static void put(const struct world *w, const char *name, const void *bytes, size_t n)
{
        _cleanup_close_ int fd = openat(w->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        CU_ASSERT_FATAL(fd >= 0 && io_write_full(fd, bytes, n) == 0);
}

static void put_text(const struct world *w, const char *name, const char *text)
{
        put(w, name, text, strlen(text));
}

static void sign_text(const struct world *w, const struct p256_key *key, const char *text, size_t n)
{
        uint8_t signature[P256_SIGNATURE_MAX_BYTES];
        size_t signature_n = 0;

        CU_ASSERT_FATAL(p256_sign(key, text, n, signature, &signature_n) == 0);
        put(w, IMAGE_MANIFEST_FILE, text, n);
        put(w, IMAGE_MANIFEST_SIGNATURE, signature, signature_n);
}

/* named: the key that the manifest names. */
static void sign(const struct world *w, const struct p256_key *key, const struct p256_key *named)
{
        static const char *const names[] = {"cmdline", "initrd", "kernel"};
        struct image_manifest m = {.name = "test", .agent = "-"};
        char text[IMAGE_MANIFEST_MAX_BYTES];

        p256_fingerprint(named, m.key);
        for (size_t i = 0; i < 3; i++) {
                struct image_manifest_file file = {0};

                (void)snprintf(file.name, sizeof(file.name), "%s", names[i]);
                CU_ASSERT_FATAL(
                        image_directory_hash(w->dir_fd, names[i], INT64_MAX, -1, file.digest, &file.bytes) == 0);
                CU_ASSERT_FATAL(image_manifest_add(&m, &file) == 0);
        }
        sign_text(w, key, text, image_manifest_format(&m, text));
}

static void set_up(struct world *w)
{
        (void)snprintf(w->path, sizeof(w->path), "/tmp/wb-image-check.XXXXXX");
        CU_ASSERT_FATAL(mkdtemp(w->path) != NULL);
        CU_ASSERT_FATAL(image_directory_open(w->path, &w->dir_fd) == 0);
        CU_ASSERT_FATAL(p256_make(&w->key) == 0);
        w->keys = (struct image_keys){.items = {w->key}, .n = 1};
        put_text(w, "kernel", KERNEL);
        put_text(w, "initrd", "the initrd's bytes");
        put_text(w, "cmdline", "console=ttyS0\n");
        sign(w, w->key, w->key);
}

static int remove_file(void *userdata, const char *name)
{
        const struct world *w = userdata;

        if (unlinkat(w->dir_fd, name, 0) < 0)
                (void)unlinkat(w->dir_fd, name, AT_REMOVEDIR);
        return 0;
}

static void tear_down(struct world *w)
{
        (void)image_directory_list(w->dir_fd, remove_file, w);
        (void)remove_file(w, IMAGE_MANIFEST_FILE);
        (void)remove_file(w, IMAGE_MANIFEST_SIGNATURE);
        CU_ASSERT(rmdir(w->path) == 0);
        (void)close_fd(w->dir_fd);
        p256_free(w->key);
}

static struct image_check check;

static enum image_check_result result_of(const struct world *w)
{
        CU_ASSERT(image_check(w->path, &w->keys, NULL, &check) == 0);
        return check.result;
}

/* The image is altered in this one way. */
static bool has_flaw(const struct world *w, const char *name, enum image_flaw_kind kind)
{
        return result_of(w) == IMAGE_CHECK_ALTERED && check.flaws_n == 1 && !check.flaws_more &&
               strcmp(check.flaws[0].name, name) == 0 && check.flaws[0].kind == kind;
}

static void test_a_signed_image_is_whole(void)
{
        struct world w;

        set_up(&w);
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_WHOLE);
        CU_ASSERT_STRING_EQUAL(check.manifest.name, "test");
        CU_ASSERT_EQUAL(check.flaws_n, 0);
        tear_down(&w);
}

static void test_each_flaw_has_its_name(void)
{
        struct world w;

        set_up(&w);
        put_text(&w, "kernel", "THE kernel's bytes");
        CU_ASSERT(has_flaw(&w, "kernel", IMAGE_FLAW_ALTERED));
        put_text(&w, "kernel", KERNEL " and more");
        CU_ASSERT(has_flaw(&w, "kernel", IMAGE_FLAW_ALTERED));
        put_text(&w, "kernel", "");
        CU_ASSERT(has_flaw(&w, "kernel", IMAGE_FLAW_ALTERED));
        (void)unlinkat(w.dir_fd, "kernel", 0);
        CU_ASSERT(has_flaw(&w, "kernel", IMAGE_FLAW_MISSING));
        put_text(&w, "kernel", KERNEL);
        put_text(&w, "extra\x1b", "");
        CU_ASSERT(has_flaw(&w, "extra\x1b", IMAGE_FLAW_EXTRA));
        (void)unlinkat(w.dir_fd, "extra\x1b", 0);
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_WHOLE);
        tear_down(&w);
}

/* Even one that leads to the very bytes. */
static void test_nothing_but_regular_files_is_read(void)
{
        char target[128];
        struct world w;

        set_up(&w);
        put_text(&w, "initrd", KERNEL);
        sign(&w, w.key, w.key);
        (void)unlinkat(w.dir_fd, "initrd", 0);
        CU_ASSERT_FATAL(symlinkat("kernel", w.dir_fd, "initrd") == 0);
        CU_ASSERT(has_flaw(&w, "initrd", IMAGE_FLAW_IRREGULAR));
        (void)unlinkat(w.dir_fd, "initrd", 0);
        CU_ASSERT_FATAL(mkfifoat(w.dir_fd, "initrd", 0600) == 0);
        CU_ASSERT(has_flaw(&w, "initrd", IMAGE_FLAW_IRREGULAR)); /* and waits for nobody */
        (void)unlinkat(w.dir_fd, "initrd", 0);
        CU_ASSERT_FATAL(mkdirat(w.dir_fd, "initrd", 0700) == 0);
        CU_ASSERT(has_flaw(&w, "initrd", IMAGE_FLAW_IRREGULAR));
        (void)unlinkat(w.dir_fd, "initrd", AT_REMOVEDIR);
        put_text(&w, "initrd", KERNEL);
        CU_ASSERT_FATAL(renameat(w.dir_fd, IMAGE_MANIFEST_FILE, w.dir_fd, "kept") == 0);
        (void)snprintf(target, sizeof(target), "%s/kept", w.path);
        CU_ASSERT_FATAL(symlinkat(target, w.dir_fd, IMAGE_MANIFEST_FILE) == 0);
        CU_ASSERT(result_of(&w) == IMAGE_CHECK_UNSIGNED && check.missing_error == 0);
        tear_down(&w);
}

static void test_flaws_are_bounded(void)
{
        struct world w;

        set_up(&w);
        for (unsigned i = 0; i < 2 * IMAGE_FLAWS_MAX; i++) {
                char name[16];

                (void)snprintf(name, sizeof(name), "x%u", i);
                put_text(&w, name, "");
        }
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_ALTERED);
        CU_ASSERT(check.flaws_n == IMAGE_FLAWS_MAX && check.flaws_more);
        tear_down(&w);
}

static void test_the_signature_must_be_that_of_a_given_key(void)
{
        _cleanup_(p256_freep) struct p256_key *other = NULL;
        struct world w;

        CU_ASSERT_FATAL(p256_make(&other) == 0);
        set_up(&w);
        sign(&w, other, other);
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_OTHER_KEY);
        sign(&w, other, w.key); /* a stranger who names the key that is believed */
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_BAD_SIGNATURE);
        sign(&w, w.key, other);
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_INVALID_MANIFEST);
        sign(&w, w.key, w.key);
        w.keys = (struct image_keys){.items = {other, w.key}, .n = 2};
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_WHOLE);
        w.keys.n = 0; /* nobody is believed */
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_OTHER_KEY);
        tear_down(&w);
}

static void test_manifest_and_signature_belong_together(void)
{
        char large[IMAGE_MANIFEST_MAX_BYTES + 1];
        struct world w;

        set_up(&w);
        put_text(&w, IMAGE_MANIFEST_SIGNATURE, "");
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_BAD_SIGNATURE);
        memset(large, 'a', sizeof(large));
        put(&w, IMAGE_MANIFEST_SIGNATURE, large, sizeof(large));
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_BAD_SIGNATURE);
        (void)unlinkat(w.dir_fd, IMAGE_MANIFEST_SIGNATURE, 0);
        CU_ASSERT(result_of(&w) == IMAGE_CHECK_UNSIGNED && strcmp(check.missing, IMAGE_MANIFEST_SIGNATURE) == 0);
        sign(&w, w.key, w.key);
        put_text(&w, IMAGE_MANIFEST_FILE, "wb-image 1\n");
        CU_ASSERT_EQUAL(result_of(&w), IMAGE_CHECK_BAD_SIGNATURE);
        (void)unlinkat(w.dir_fd, IMAGE_MANIFEST_FILE, 0);
        CU_ASSERT(result_of(&w) == IMAGE_CHECK_UNSIGNED && strcmp(check.missing, IMAGE_MANIFEST_FILE) == 0);
        sign_text(&w, w.key, "wb-image 1\n", 11);
        CU_ASSERT(result_of(&w) == IMAGE_CHECK_INVALID_MANIFEST && check.invalid.line == 1);
        tear_down(&w);
}

static void test_copies_are_what_was_verified_whatever_comes_later(void)
{
        struct image_copies copies = {.fds = {-1, -1, -1}};
        char bytes[64];
        struct world w;
        int kernel_fd;

        set_up(&w);
        CU_ASSERT_FATAL(image_check(w.path, &w.keys, &copies, &check) == 0 && check.result == IMAGE_CHECK_WHOLE);
        kernel_fd = copies.fds[IMAGE_COPY_KERNEL];
        put_text(&w, "kernel", "something else"); /* in place */
        put_text(&w, "other", "something else");
        CU_ASSERT_FATAL(renameat(w.dir_fd, "other", w.dir_fd, "kernel") == 0);
        CU_ASSERT(read(kernel_fd, bytes, sizeof(bytes)) == (ssize_t)strlen(KERNEL));
        CU_ASSERT(memcmp(bytes, KERNEL, strlen(KERNEL)) == 0);
        CU_ASSERT(pwrite(kernel_fd, "x", 1, 0) < 0 && errno == EPERM);
        CU_ASSERT(ftruncate(kernel_fd, 1) < 0 && errno == EPERM);
        CU_ASSERT(mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, kernel_fd, 0) == MAP_FAILED);
        CU_ASSERT((fcntl(kernel_fd, F_GET_SEALS) & F_SEAL_SEAL) != 0);
        CU_ASSERT(read(copies.fds[IMAGE_COPY_CMDLINE], bytes, sizeof(bytes)) == 14);
        image_copies_close(&copies);
        CU_ASSERT(image_check(w.path, &w.keys, &copies, &check) == 0 && check.result == IMAGE_CHECK_ALTERED);
        CU_ASSERT(copies.fds[IMAGE_COPY_KERNEL] == -1);
        tear_down(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a signed image is whole", test_a_signed_image_is_whole},
                {"each flaw has its name", test_each_flaw_has_its_name},
                {"nothing but regular files is read", test_nothing_but_regular_files_is_read},
                {"flaws are bounded", test_flaws_are_bounded},
                {"the signature must be that of a given key", test_the_signature_must_be_that_of_a_given_key},
                {"manifest and signature belong together", test_manifest_and_signature_belong_together},
                {"copies are what was verified, whatever comes later",
                        test_copies_are_what_was_verified_whatever_comes_later},
                CU_TEST_INFO_NULL,
        };

        return suite_run("image_check", tests);
}
