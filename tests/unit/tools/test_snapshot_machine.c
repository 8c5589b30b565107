/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_machine.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/suite.h"

#define D "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const char *const lines[] = {
        "wb-snapshot 1",
        "qemu 7.2.22 Debian 1:7.2+dfsg-7",
        "machine q35,sata=off",
        "accel tcg",
        "cpu max",
        "processor Some (R) Processor",
        "cpus 2",
        "memory 268435456",
        "kernel " D,
        "initrd " D,
        "cmdline " D,
        "state 264669 " D,
};

#define LINES_N (sizeof(lines) / sizeof(lines[0]))

/* The text with one line replaced (NULL: left out), with a check that is right. */
static size_t make(size_t which, const char *replacement, char *to)
{
        uint8_t digest[SHA256_BYTES];
        char hex[SHA256_TEXT_BYTES];
        size_t n = 0;

        for (size_t i = 0; i < LINES_N; i++) {
                const char *line = i == which ? replacement : lines[i];

                if (line)
                        n += (size_t)sprintf(to + n, "%s\n", line);
        }
        CU_ASSERT_FATAL(sha256_bytes(to, n, digest) == 0);
        sha256_text(digest, hex);
        return n + (size_t)sprintf(to + n, "check %s\n", hex);
}

/* The line that is complained of; 0: none. */
static size_t complaint(const char *text, size_t n)
{
        struct snapshot_machine m;
        struct snapshot_machine_error error = {0};
        int r = snapshot_machine_parse(text, n, &m, &error);

        CU_ASSERT(r == 0 || (r == SNAPSHOT_MACHINE_E_INVALID && error.reason != NULL));
        return error.line;
}

static void test_it_is_read_and_written_the_same(void)
{
        char text[4096];
        char again[SNAPSHOT_MACHINE_MAX_BYTES];
        size_t n = make(LINES_N, NULL, text);
        size_t again_n = 0;
        struct snapshot_machine m;
        struct snapshot_machine_error error;

        CU_ASSERT_FATAL(snapshot_machine_parse(text, n, &m, &error) == 0);
        CU_ASSERT_STRING_EQUAL(m.qemu, "7.2.22 Debian 1:7.2+dfsg-7");
        CU_ASSERT_STRING_EQUAL(m.machine, "q35,sata=off");
        CU_ASSERT_STRING_EQUAL(m.cpu, "max");
        CU_ASSERT_STRING_EQUAL(m.processor, "Some (R) Processor");
        CU_ASSERT(!m.kvm && m.cpus == 2 && m.memory_bytes == 268435456 && m.state_bytes == 264669);
        CU_ASSERT(m.kernel[0] == 0xba && m.state[SHA256_BYTES - 1] == 0xad);
        CU_ASSERT_FATAL(snapshot_machine_format(&m, again, &again_n) == 0);
        CU_ASSERT(again_n == n && memcmp(again, text, n) == 0);
        n = make(3, "accel kvm", text);
        CU_ASSERT(snapshot_machine_parse(text, n, &m, &error) == 0 && m.kvm);
}

static void test_every_line_is_wanted_once_and_in_order(void)
{
        char text[4096];

        for (size_t i = 0; i < LINES_N; i++) {
                char twice[512];

                CU_ASSERT_EQUAL(complaint(text, make(i, NULL, text)), i + 1);
                (void)snprintf(twice, sizeof(twice), "%s\n%s", lines[i], lines[i]);
                CU_ASSERT_EQUAL(complaint(text, make(i, twice, text)), i + 2);
                (void)snprintf(twice, sizeof(twice), "%s ", lines[i]);
                CU_ASSERT_EQUAL(complaint(text, make(i, twice, text)), i + 1);
                (void)snprintf(twice, sizeof(twice), "%s\r", lines[i]);
                CU_ASSERT_EQUAL(complaint(text, make(i, twice, text)), i + 1);
                (void)snprintf(twice, sizeof(twice), " %s", lines[i]);
                CU_ASSERT_EQUAL(complaint(text, make(i, twice, text)), i + 1);
        }
}

static void test_values_are_strict(void)
{
        static const struct {
                size_t line;
                const char *text;
        } wrong[] = {
                {0, "wb-snapshot 2"},
                {1, "qemu "},
                {1, "qemu  7"},
                {1, "qemu \x1b[2J"},
                {1, "qemu \xc3\xa4"},
                {3, "accel hvf"},
                {3, "accel "},
                {6, "cpus 0"},
                {6, "cpus 01"},
                {6, "cpus 256"},
                {6, "cpus +1"},
                {6, "cpus -1"},
                {6, "cpus 18446744073709551617"},
                {7, "memory 0"},
                {7, "memory 100663295"},
                {7, "memory 268435457"},
                {7, "memory 4398047559680"},
                {7, "memory 18446744073977987072"},
                {7, "memory 256M"},
                {8, "kernel ba78"},
                {8, "kernel BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"},
                {11, "state 0 " D},
                {11, "state 67108865 " D},
                {11, "state " D},
                {11, "state 264669  " D},
        };
        char text[4096];

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                CU_ASSERT_EQUAL(complaint(text, make(wrong[i].line, wrong[i].text, text)), wrong[i].line + 1);
        CU_ASSERT_EQUAL(complaint(text, make(7, "memory 4398046511104", text)), 0);
        CU_ASSERT_EQUAL(complaint(text, make(6, "cpus 255", text)), 0);
}

static void test_texts_have_a_bound(void)
{
        char line[256] = "cpu ";
        char text[4096];

        memset(line + 4, 'x', 128);
        CU_ASSERT_EQUAL(complaint(text, make(4, line, text)), 0);
        line[4 + 128] = 'x';
        CU_ASSERT_EQUAL(complaint(text, make(4, line, text)), 5);
        CU_ASSERT(snapshot_machine_is_text("a b") && !snapshot_machine_is_text("") && !snapshot_machine_is_text("a "));
        CU_ASSERT(!snapshot_machine_is_text("a\nb") && !snapshot_machine_is_text(line + 4));
}

static void test_no_byte_may_change_and_none_be_missing(void)
{
        char text[4096];
        size_t n = make(LINES_N, NULL, text);

        CU_ASSERT_EQUAL(complaint(text, n), 0);
        for (size_t i = 0; i < n; i++) {
                text[i] ^= 1;
                CU_ASSERT(complaint(text, n) > 0);
                text[i] ^= 1;
                CU_ASSERT(complaint(text, i) > 0);
        }
        text[n] = '\n';
        CU_ASSERT_EQUAL(complaint(text, n + 1), LINES_N + 1);
        text[n] = '\0';
        CU_ASSERT_EQUAL(complaint(text, n + 1), LINES_N + 1);
        CU_ASSERT_EQUAL(complaint(text, sizeof(text)), 1);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"it is read and written the same", test_it_is_read_and_written_the_same},
                {"every line is wanted once and in order", test_every_line_is_wanted_once_and_in_order},
                {"values are strict", test_values_are_strict},
                {"texts have a bound", test_texts_have_a_bound},
                {"no byte may change and none be missing", test_no_byte_may_change_and_none_be_missing},
                CU_TEST_INFO_NULL,
        };

        return suite_run("snapshot_machine", tests);
}
