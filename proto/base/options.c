/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/parse.h"

#define HELP_COLUMN  32  /* where the words about an option begin */
#define HELP_COLUMNS 120 /* of a line */

static void *member(const struct option_spec *spec, void *target)
{
        return (char *)target + spec->offset;
}

/* The table's first word: the program's name. */
static int program_width(const struct option_table *table)
{
        return (int)strcspn(table->usage, " ");
}

/* From column on, where the cursor is; a line that is full goes on at that column. */
static void print_wrapped(FILE *to, int column, const char *text)
{
        int at = column;

        for (const char *p = text; *p; p++) {
                if (*p == ' ' && at + 1 + (int)strcspn(p + 1, " \n") > HELP_COLUMNS) {
                        fprintf(to, "\n%*s", column, "");
                        at = column;
                        continue;
                }
                (void)putc(*p, to);
                at = *p == '\n' ? 0 : at + 1;
        }
        (void)putc('\n', to);
}

static void print_usage(FILE *to, const struct option_table *table)
{
        int column = fprintf(to, "usage: ");

        print_wrapped(to, column, table->usage);
}

int options_usage_error(const struct option_table *table, const char *format, ...)
{
        va_list ap;

        fprintf(stderr, "%.*s: ", program_width(table), table->usage);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fprintf(stderr, "\n");
        print_usage(stderr, table);
        return OPTIONS_E_USAGE;
}

static void print_help(const struct option_table *table)
{
        print_usage(stdout, table);
        printf("\n");
        print_wrapped(stdout, 0, table->summary);
        if (table->specs_n)
                printf("\n");
        for (size_t i = 0; i < table->specs_n; i++) {
                const struct option_spec *s = &table->specs[i];
                char left[64];

                (void)snprintf(left, sizeof(left), "%c%c%s --%s%s%s", s->letter ? '-' : ' ',
                        s->letter ? s->letter : ' ', s->letter ? "," : " ", s->name, s->value ? " " : "",
                        s->value ? s->value : "");
                /* What is too wide has its words on the next line, so that all stand in one column. */
                if (strlen(left) > HELP_COLUMN)
                        printf("  %s\n  %-*s ", left, HELP_COLUMN, "");
                else
                        printf("  %-*s ", HELP_COLUMN, left);
                print_wrapped(stdout, 2 + HELP_COLUMN + 1, s->help);
        }
        printf("      %-28s %s\n", "--help", "this text");
        if (table->example)
                printf("\nexample:\n  %s\n", table->example);
}

static int append(struct option_strings *strings, const char *text)
{
        const char **items = realloc(strings->items, (strings->n + 1) * sizeof(*items));

        if (!items)
                return -ENOMEM;
        items[strings->n++] = text;
        strings->items = items;
        return 0;
}

static int set_value(const struct option_table *table, const struct option_spec *spec, const char *text, void *target)
{
        void *at = member(spec, target);
        const char *name = spec->name;
        int r = 0;

        switch (spec->type) {
        case OPTION_FLAG: *(bool *)at = true; break;
        case OPTION_STRING: *(const char **)at = text; break;
        case OPTION_STRINGS: r = append(at, text); break;
        case OPTION_U64: r = parse_u64(text, UINT64_MAX, at); break;
        case OPTION_DURATION_MS: r = parse_duration_ms(text, at); break;
        case OPTION_SIZE: r = parse_size(text, at); break;
        }
        if (r == -ERANGE)
                return options_usage_error(table, "--%s %s is out of range", name, text);
        if (r == -EINVAL)
                return options_usage_error(table, "--%s wants %s, not '%s'", name, spec->value, text);
        return r;
}

static const struct option_spec *find(const struct option_table *table, const char *arg, size_t name_n)
{
        for (size_t i = 0; i < table->specs_n; i++) {
                const struct option_spec *s = &table->specs[i];

                if (arg[1] == '-' && strlen(s->name) == name_n && strncmp(arg + 2, s->name, name_n) == 0)
                        return s;
                if (arg[1] != '-' && s->letter && arg[1] == s->letter && !arg[2])
                        return s;
        }
        return NULL;
}

/* Takes the option at argv[*at], and its value. */
static int take_option(const struct option_table *table, int argc, char **argv, int *at, void *target)
{
        char *arg = argv[*at];
        bool is_long = arg[1] == '-';
        const char *equals = is_long ? strchr(arg, '=') : NULL;
        size_t name_n = is_long ? (equals ? (size_t)(equals - arg - 2) : strlen(arg + 2)) : 0;
        const struct option_spec *spec;

        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
                print_help(table);
                return OPTIONS_E_HELP;
        }
        spec = find(table, arg, name_n);
        if (!spec)
                return options_usage_error(table, "unknown option %s", arg);
        if (spec->type == OPTION_FLAG) {
                if (equals)
                        return options_usage_error(table, "--%s takes no value", spec->name);
                return set_value(table, spec, NULL, target);
        }
        if (equals)
                return set_value(table, spec, equals + 1, target);
        if (*at + 1 >= argc)
                return options_usage_error(table, "--%s wants %s", spec->name, spec->value);
        return set_value(table, spec, argv[++*at], target);
}

int options_parse(
        const struct option_table *table, int argc, char **argv, void *target, char ***ret_rest, size_t *ret_rest_n)
{
        int rest = 1, at = 1;

        /* Positional arguments gather from argv[1] on; the options before them have been taken by then. */
        for (; at < argc; at++) {
                int r;

                if (strcmp(argv[at], "--") == 0) {
                        at++;
                        break;
                }
                if (argv[at][0] != '-' || !argv[at][1]) {
                        if (!table->intermixed)
                                break;
                        argv[rest++] = argv[at];
                        continue;
                }
                r = take_option(table, argc, argv, &at, target);
                if (r != 0)
                        return r;
        }
        for (; at < argc; at++)
                argv[rest++] = argv[at];
        if (rest < argc)
                argv[rest] = NULL;
        *ret_rest = argv + 1;
        *ret_rest_n = argc > 0 ? (size_t)(rest - 1) : 0;
        return 0;
}

void option_strings_done(struct option_strings *strings)
{
        free(strings->items);
        *strings = (struct option_strings){0};
}
