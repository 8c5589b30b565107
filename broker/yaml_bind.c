/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/cleanup.h"
#include "proto/base/parse.h"

#define LIST_TEXT_BYTES 320 /* of "a, b or c" in a message */

static bool is_text(const struct yaml_node *node, const char *text)
{
        return node->kind == YAML_SCALAR && node->text_n == strlen(text) && memcmp(node->text, text, node->text_n) == 0;
}

const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key)
{
        for (size_t i = 0; i + 1 < mapping->items_n; i += 2)
                if (is_text(mapping->items[i], key))
                        return mapping->items[i + 1];
        return NULL;
}

static size_t least_of(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* Insertions, deletions and replacements between two short words (Levenshtein); NEAR_MOST + 1 is far enough to end. */
#define NEAR_MOST  3u
#define WORD_BYTES 32u
static size_t distance(const char *a, const char *b)
{
        size_t a_n = strlen(a), b_n = strlen(b);
        size_t row[WORD_BYTES + 1];

        if (a_n > WORD_BYTES || b_n > WORD_BYTES)
                return NEAR_MOST + 1;
        for (size_t j = 0; j <= b_n; j++)
                row[j] = j;
        for (size_t i = 1; i <= a_n; i++) {
                size_t diagonal = row[0];

                row[0] = i;
                for (size_t j = 1; j <= b_n; j++) {
                        size_t replaced = diagonal + (a[i - 1] != b[j - 1]);

                        diagonal = row[j];
                        row[j] = least_of(replaced, least_of(row[j], row[j - 1]) + 1);
                }
        }
        return row[b_n];
}

static const struct yaml_field *find_field(
        const struct yaml_node *key, const struct yaml_field *fields, size_t fields_n)
{
        for (size_t i = 0; i < fields_n; i++)
                if (is_text(key, fields[i].key))
                        return &fields[i];
        return NULL;
}

static int fail_unknown(
        const struct yaml_context *c, const struct yaml_node *key, const struct yaml_field *fields, size_t fields_n)
{
        const char *nearest = NULL;
        size_t nearest_distance = NEAR_MOST + 1;
        char known[LIST_TEXT_BYTES] = "";
        size_t at = 0;

        for (size_t i = 0; i < fields_n; i++) {
                size_t d = distance(key->text, fields[i].key);

                if (d < nearest_distance) {
                        nearest_distance = d;
                        nearest = fields[i].key;
                }
                if (at < sizeof(known))
                        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", fields[i].key);
        }
        if (nearest)
                return yaml_fail(c, key, "unknown key \"%.60s\"; did you mean %s?", key->text, nearest);
        return yaml_fail(c, key, "unknown key \"%.60s\"; known are %s", key->text, known);
}

static int bind_key(const struct yaml_context *c, const struct yaml_node *mapping, size_t at,
        const struct yaml_field *fields, size_t fields_n, void *target)
{
        const struct yaml_node *key = mapping->items[at];
        const struct yaml_field *field;

        if (key->kind != YAML_SCALAR)
                return yaml_fail(c, key, "a key must be a word, not a list or a mapping");
        field = find_field(key, fields, fields_n);
        if (!field)
                return fail_unknown(c, key, fields, fields_n);
        for (size_t i = 0; i < at; i += 2)
                if (is_text(mapping->items[i], field->key))
                        return yaml_fail(c, key, "duplicate key \"%s\"; line %u has it already", field->key,
                                mapping->items[i]->line);
        return field->bind(c, mapping->items[at + 1], field, (char *)target + field->offset);
}

int yaml_bind(const struct yaml_context *c, const struct yaml_node *mapping, const struct yaml_field *fields,
        size_t fields_n, void *target)
{
        for (size_t at = 0; at + 1 < mapping->items_n; at += 2) {
                int r = bind_key(c, mapping, at, fields, fields_n, target);

                if (r != 0)
                        return r;
        }
        for (size_t i = 0; i < fields_n; i++)
                if (fields[i].required && !yaml_get(mapping, fields[i].key))
                        return yaml_fail(c, mapping, "%s is missing", fields[i].key);
        return 0;
}

static bool is_null(const struct yaml_node *v)
{
        return v->plain && (v->text_n == 0 || strcmp(v->text, "~") == 0 || strcasecmp(v->text, "null") == 0);
}

/* What YAML 1.1 or 1.2 takes a plain scalar for, where that is no text; else NULL. */
static const char *plain_kind(const struct yaml_node *v)
{
        static const char *const booleans[] = {"true", "false", "yes", "no", "on", "off"};
        const char *digits = v->text + (v->text[0] == '-' || v->text[0] == '+');
        char *end;

        if (!v->plain)
                return NULL;
        if (is_null(v))
                return "null (nothing)";
        for (size_t i = 0; i < sizeof(booleans) / sizeof(*booleans); i++)
                if (strcasecmp(v->text, booleans[i]) == 0)
                        return "a boolean";
        if (*digits != '.' && (*digits < '0' || *digits > '9'))
                return NULL;
        (void)strtod(digits, &end);
        return end != digits && *end == '\0' ? "a number" : NULL;
}

static const char *kind_name(const struct yaml_node *v)
{
        const char *plain;

        switch (v->kind) {
        case YAML_SEQUENCE: return "a list";
        case YAML_MAPPING: return "a mapping";
        case YAML_SCALAR: break;
        }
        plain = plain_kind(v);
        return plain ? plain : v->plain ? "a text" : "a text in quotes";
}

/* Digits as people write them, without sign, base, underscores or leading zero: every YAML reads those alike. */
static int parse_plain_number(const struct yaml_node *v, uint64_t *ret)
{
        if (v->kind != YAML_SCALAR || !v->plain || (v->text[0] == '0' && v->text[1]))
                return -EINVAL;
        return parse_u64(v->text, UINT64_MAX, ret);
}

static bool is_negative(const struct yaml_node *v)
{
        size_t n = v->kind == YAML_SCALAR && v->plain && v->text[0] == '-' ? strspn(v->text + 1, "0123456789") : 0;

        return n > 0 && v->text[1 + n] == '\0';
}

static int bind_number(const struct yaml_context *c, const struct yaml_node *v, const char *key,
        const struct yaml_range *range, uint64_t *ret)
{
        uint64_t number = 0;
        int r = parse_plain_number(v, &number);

        if (r == -ERANGE || is_negative(v) || (r == 0 && (number < range->least || number > range->most)))
                return yaml_fail(c, v, "%s: %.40s is out of range; it must be from %llu to %llu", key, v->text,
                        (unsigned long long)range->least, (unsigned long long)range->most);
        if (r < 0 && v->kind == YAML_SCALAR && !is_null(v))
                return yaml_fail(c, v, "%s: must be a whole number in plain digits, not %s%.40s%s", key,
                        v->plain ? "" : "\"", v->text, v->plain ? "" : "\" in quotes");
        if (r < 0)
                return yaml_fail(c, v, "%s: must be a whole number in plain digits, not %s", key, kind_name(v));
        *ret = number;
        return 0;
}

int yaml_bind_u64(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        return bind_number(c, v, f->key, f->detail, member);
}

int yaml_bind_port(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        static const struct yaml_range range = {1, UINT16_MAX};
        uint64_t number = 0;
        int r = bind_number(c, v, f->key, &range, &number);

        if (r == 0)
                *(uint16_t *)member = (uint16_t)number;
        return r;
}

int yaml_bind_bool(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        bool is_true = v->kind == YAML_SCALAR && v->plain && is_text(v, "true");

        if (!is_true && !(v->kind == YAML_SCALAR && v->plain && is_text(v, "false")))
                return yaml_fail(c, v, "%s: must be true or false, not %s", f->key,
                        v->kind == YAML_SCALAR ? "anything else" : kind_name(v));
        *(bool *)member = is_true;
        return 0;
}

int yaml_bind_string(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        char *copy;

        if (v->kind != YAML_SCALAR)
                return yaml_fail(c, v, "%s: must be a string, not %s", f->key, kind_name(v));
        if (plain_kind(v) && v->text_n == 0)
                return yaml_fail(c, v, "%s: must be a string, not null (nothing)", f->key);
        if (plain_kind(v))
                return yaml_fail(
                        c, v, "%s: must be a string; without quotes %.40s is %s", f->key, v->text, plain_kind(v));
        for (size_t i = 0; i < v->text_n; i++)
                if ((unsigned char)v->text[i] < 0x20 || v->text[i] == 0x7f)
                        return yaml_fail(c, v, "%s: a string without control characters is wanted", f->key);
        copy = strdup(v->text);
        if (!copy)
                return -ENOMEM;
        *(char **)member = copy;
        return 0;
}

int yaml_bind_enum(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const struct yaml_words *words = f->detail;
        char list[LIST_TEXT_BYTES] = "";
        size_t at = 0;

        for (size_t i = 0; i < words->n; i++) {
                const char *between = i == 0 ? "" : i + 1 == words->n ? " or " : ", ";

                if (is_text(v, words->words[i])) {
                        *(int *)member = (int)i;
                        return 0;
                }
                if (at < sizeof(list))
                        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", between, words->words[i]);
        }
        if (v->kind != YAML_SCALAR || v->text_n == 0)
                return yaml_fail(c, v, "%s: must be %s, not %s", f->key, list, kind_name(v));
        return yaml_fail(c, v, "%s: must be %s, not \"%.60s\"", f->key, list, v->text);
}

int yaml_bind_object(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const struct yaml_object *object = f->detail;

        if (v->kind != YAML_MAPPING)
                return yaml_fail(c, v, "%s: must be a mapping, not %s", f->key, kind_name(v));
        return yaml_bind(c, v, object->fields, object->fields_n, member);
}

int yaml_bind_list(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const struct yaml_list *list = f->detail;
        size_t *count = (size_t *)(void *)((char *)member - f->offset + list->count_offset);
        char *items;

        if (v->kind != YAML_SEQUENCE)
                return yaml_fail(c, v, "%s: must be a list, not %s", f->key, kind_name(v));
        if (v->items_n == 0 && list->may_be_empty)
                return 0;
        if (v->items_n == 0)
                return yaml_fail(c, v, "%s: an empty list; leave the key out for the default", f->key);
        if (v->items_n > list->most)
                return yaml_fail(c, v, "%s: %zu items, more than %zu", f->key, v->items_n, list->most);
        items = calloc(v->items_n, list->item_bytes);
        if (!items)
                return -ENOMEM;
        *(void **)member = items;
        *count = v->items_n;
        for (size_t i = 0; i < v->items_n; i++) {
                int r = list->item.bind(c, v->items[i], &list->item, items + i * list->item_bytes);

                if (r != 0)
                        return r;
        }
        return 0;
}
