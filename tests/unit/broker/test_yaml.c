/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/yaml.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tests/support/cases.h"

DEFINE_CLEANUP(struct yaml_document *, yaml_document_free);

#define SIZEOF(a) (sizeof(a) / sizeof(*(a)))

enum colour {
        RED,
        DARK_BLUE,
};

struct inner {
        uint64_t number;
        bool flag;
};

struct outer {
        char *name;
        enum colour colour;
        struct inner inner;
        uint16_t *ports;
        size_t ports_n;
        struct inner *list;
        size_t list_n;
        char **words;
        size_t words_n;
};

static const char *const colours[] = {[RED] = "red", [DARK_BLUE] = "dark_blue"};
static const struct yaml_words colour_words = {colours, SIZEOF(colours)};
static const struct yaml_range number_range = {2, 100};
static const struct yaml_field inner_fields[] = {
        {"number", yaml_bind_u64, offsetof(struct inner, number), &number_range, true},
        {"flag", yaml_bind_bool, offsetof(struct inner, flag), NULL, false},
};
static const struct yaml_object inner_object = {inner_fields, SIZEOF(inner_fields)};
static const struct yaml_list port_list = {
        .item = {"ports", yaml_bind_port, 0, NULL, false},
        .item_bytes = sizeof(uint16_t),
        .most = 3,
        .count_offset = offsetof(struct outer, ports_n),
};
static const struct yaml_list inner_list = {
        .item = {"list", yaml_bind_object, 0, &inner_object, false},
        .item_bytes = sizeof(struct inner),
        .most = 10,
        .count_offset = offsetof(struct outer, list_n),
};
static const struct yaml_list word_list = {
        .item = {"words", yaml_bind_string, 0, NULL, false},
        .item_bytes = sizeof(char *),
        .most = 10,
        .count_offset = offsetof(struct outer, words_n),
        .may_be_empty = true,
};
static const struct yaml_field outer_fields[] = {
        {"name", yaml_bind_string, offsetof(struct outer, name), NULL, false},
        {"colour", yaml_bind_enum, offsetof(struct outer, colour), &colour_words, false},
        {"inner", yaml_bind_object, offsetof(struct outer, inner), &inner_object, false},
        {"ports", yaml_bind_list, offsetof(struct outer, ports), &port_list, false},
        {"list", yaml_bind_list, offsetof(struct outer, list), &inner_list, false},
        {"words", yaml_bind_list, offsetof(struct outer, words), &word_list, false},
};

static void outer_done(struct outer *o)
{
        for (size_t i = 0; i < o->words_n; i++)
                free(o->words[i]);
        free(o->words);
        free(o->list);
        free(o->ports);
        free(o->name);
}

static int load(const char *text, size_t n, struct outer *o, struct yaml_error *e)
{
        _cleanup_(yaml_document_freep) struct yaml_document *d = NULL;
        struct yaml_context c = {.error = e};
        int r = yaml_parse("f", text, n, &d, e);

        if (r != 0)
                return r;
        c.document = d;
        return yaml_bind(&c, yaml_root(d), outer_fields, SIZEOF(outer_fields), o);
}

static void test_binds_everything(void)
{
        static const char text[] =
                "name: \"a b\"\ncolour: dark_blue\ninner: {number: 7, flag: true}\nports: [1, 65535]\n"
                "list:\n  - number: 2\n  - {number: 100}\nwords: []\n";
        struct outer o = {0};
        struct yaml_error e = {0};

        CU_ASSERT_EQUAL_FATAL(load(text, strlen(text), &o, &e), 0);
        CU_ASSERT_STRING_EQUAL(o.name, "a b");
        CU_ASSERT_EQUAL(o.colour, DARK_BLUE);
        CU_ASSERT_EQUAL(o.inner.number, 7);
        CU_ASSERT_TRUE(o.inner.flag);
        CU_ASSERT_EQUAL(o.ports_n, 2);
        CU_ASSERT_EQUAL(o.ports[1], 65535);
        CU_ASSERT_EQUAL(o.list_n, 2);
        CU_ASSERT_EQUAL(o.list[1].number, 100);
        CU_ASSERT_EQUAL(o.words_n, 0);
        outer_done(&o);
}

struct bad {
        const char *text;
        unsigned line, column;
        const char *say;
};

static const struct bad bads[] = {
        /* positions */
        {"nmae: x\n", 1, 1, "did you mean name?"},
        {"quite: x\n", 1, 1, "known are name, colour"},
        {"name: x\n\"name\": y\n", 2, 1, "line 1 has it"},
        {"\xef\xbb\xbfnmae: x\n", 1, 1, "nmae"},
        {"name: x\r\n\r\ncolour: blue\r\n", 3, 9, "red or dark_blue"},
        {"name: x\rcolour: blue\r", 2, 9, "colour"},
        {"{name: \"\xc3\xa9\xc3\xa9\", colour: blue}\n", 1, 24, "colour"},
        {"# \xe2\x80\xa8 \xc2\x85\ncolour: blue\n", 2, 9, "colour"},
        {"inner:\n  flag: true\n", 2, 3, "number is missing"},
        {"list:\n  - number: 5\n  - flag: true\n", 3, 5, "number is missing"},
        {"list: [{number: 5}, x]\n", 1, 21, "list: must be a mapping"},
        {"inner:\nname: x\n", 1, 7, "null"},
        {"? [name]\n: x\n", 1, 3, "a key must be"},
        /* the first error is told */
        {"nmae: x\nname: x\nname: x\n", 1, 1, "nmae"},
        /* values that are read differently from YAML to YAML */
        {"inner: {number: 010}\n", 1, 17, "plain digits"},
        {"inner: {number: 0x10}\n", 1, 17, "plain digits"},
        {"inner: {number: 0o10}\n", 1, 17, "plain digits"},
        {"inner: {number: 1_0}\n", 1, 17, "plain digits"},
        {"inner: {number: +10}\n", 1, 17, "plain digits"},
        {"inner: {number: 1:30}\n", 1, 17, "plain digits"},
        {"inner: {number: 1e1}\n", 1, 17, "plain digits"},
        {"inner: {number: .inf}\n", 1, 17, "plain digits"},
        {"inner: {number: '10'}\n", 1, 17, "in quotes"},
        {"inner: {number: ~}\n", 1, 17, "null"},
        {"inner: {number: }\n", 1, 17, "null"},
        {"inner: {number: -5}\n", 1, 17, "from 2 to 100"},
        {"inner: {number: 101}\n", 1, 17, "from 2 to 100"},
        {"inner: {number: 18446744073709551618}\n", 1, 17, "from 2 to 100"},
        {"inner: {number: 5, flag: yes}\n", 1, 26, "true or false"},
        {"inner: {number: 5, flag: \"true\"}\n", 1, 26, "true or false"},
        {"name: yes\n", 1, 7, "a boolean"},
        {"name: NULL\n", 1, 7, "null"},
        {"name: 1.5\n", 1, 7, "a number"},
        {"name: -0x1F\n", 1, 7, "a number"},
        {"name: [x]\n", 1, 7, "a list"},
        {"name: \"a\\nb\"\n", 1, 7, "control"},
        {"name: \"a\\0b\"\n", 1, 7, "control"},
        {"colour: RED\n", 1, 9, "not \"RED\""},
        {"colour: [red]\n", 1, 9, "a list"},
        {"ports: []\n", 1, 8, "empty"},
        {"ports: {a: 1}\n", 1, 8, "a mapping"},
        {"ports: [1, 2, 3, 4]\n", 1, 8, "more than 3"},
        {"ports: [1, 65536]\n", 1, 12, "65536"},
        {"ports: [0]\n", 1, 9, "from 1 to 65535"},
        /* what YAML can do and we do not */
        {"name: !!str x\n", 1, 7, "tags"},
        {"inner: !x {number: 5}\n", 1, 8, "tags"},
        {"name: &a x\nwords: [*a]\n", 2, 9, "alias"},
        {"name: *.example.org\n", 1, 8, "needs quotes"},
        {"name: x\n---\nname: y\n", 2, 1, "second document"},
        {"name: x\n...\nname: y\n", 3, 1, "document"},
        {"\tname: x\n", 1, 1, "character"},
        {"", 1, 1, "empty"},
        {"# nothing\n", 1, 1, "empty"},
        {"---\n", 1, 1, "empty"},
        {"\xff\xfen\0a\0", 1, 1, "UTF-8"},
        {"name: x\nwords: [\"\xfc\"]\n", 2, 10, "UTF-8"},
        {"name: x\nwords: [\"\x01\"]\n", 2, 10, "control"},
};

static void test_refuses_at_the_right_place(void)
{
        for (size_t i = 0; i < SIZEOF(bads); i++) {
                const struct bad *b = &bads[i];
                struct outer o = {0};
                struct yaml_error e = {0};

                CU_ASSERT_EQUAL(load(b->text, strlen(b->text), &o, &e), YAML_E_INVALID);
                if (e.line != b->line || e.column != b->column || !strstr(e.message, b->say)) {
                        printf("\n%s -> %u:%u: %s; expected %u:%u: %s\n", b->text, e.line, e.column, e.message, b->line,
                                b->column, b->say);
                        CU_FAIL("elsewhere or otherwise");
                }
                CU_ASSERT_STRING_EQUAL(e.file, "f");
                yaml_error_done(&e);
                outer_done(&o);
        }
}

static void test_an_unused_anchor_is_harmless(void)
{
        struct outer o = {0};
        struct yaml_error e = {0};

        CU_ASSERT_EQUAL(load("name: &a x\n", 11, &o, &e), 0);
        outer_done(&o);
}

static void test_a_message_is_one_printable_line(void)
{
        char text[4096] = "\"";
        struct outer o = {0};
        struct yaml_error e = {0};

        for (size_t i = 0; i < 500; i++)
                strcat(text, i % 2 ? "\\n" : "\xc3\xa9");
        strcat(text, "\": x\n");
        CU_ASSERT_EQUAL(load(text, strlen(text), &o, &e), YAML_E_INVALID);
        for (const char *p = e.message; *p; p++)
                CU_ASSERT_TRUE(*p >= 0x20 && *p < 0x7f);
        yaml_error_done(&e);
}

/* unit times, between before and after */
static int parse_repeated(const char *before, const char *unit, size_t times, const char *after)
{
        size_t room = strlen(before) + strlen(unit) * times + strlen(after) + 1;
        _cleanup_free_ char *text = malloc(room);
        _cleanup_(yaml_document_freep) struct yaml_document *d = NULL;
        struct yaml_error e = {0};
        char *at = stpcpy(text, before);
        int r;

        for (size_t i = 0; i < times; i++)
                at = stpcpy(at, unit);
        strcpy(at, after);
        r = yaml_parse("f", text, strlen(text), &d, &e);
        if (r != 0)
                yaml_error_done(&e);
        return r;
}

static void test_bounds(void)
{
        CU_ASSERT_EQUAL(parse_repeated("", "# 345678\n", YAML_MAX_BYTES / 10, "a: b\n"), 0);
        CU_ASSERT_EQUAL(parse_repeated("", "# 3456789\n", YAML_MAX_BYTES / 10, "a: bcdef\n"), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("", "[", YAML_MAX_DEPTH, "]"), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("a: ", "[", 500000, ""), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("", "- ", 500000, ""), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("", "? ", 500000, ""), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("", "{a: ", 200000, ""), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("[", "a,", 500000, "]"), YAML_E_INVALID);
        CU_ASSERT_EQUAL(parse_repeated("[", "a,", YAML_MAX_NODES - 1, "]"), 0);
        CU_ASSERT_EQUAL(parse_repeated("a: \"", "x", 1000000, "\"\n"), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"binds everything", test_binds_everything},
                {"refuses at the right place", test_refuses_at_the_right_place},
                {"an unused anchor is harmless", test_an_unused_anchor_is_harmless},
                {"a message is one printable line", test_a_message_is_one_printable_line},
                {"bounds", test_bounds},
                CU_TEST_INFO_NULL,
        };

        return cases_run("yaml", tests);
}
