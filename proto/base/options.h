/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Command lines as tables. A program or a wbctl command describes its options once; parsing, --help and the message for
 * wrong usage come from that table.
 *
 * Options come before the positional arguments; `--` ends them, and so does the first positional argument unless the
 * command says OPTIONS_INTERMIXED. `--name value`, `--name=value`, `-x value` are the same.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
        OPTION_FLAG,        /* bool: set to true */
        OPTION_STRING,      /* const char *: points into argv */
        OPTION_STRINGS,     /* struct option_strings: each occurrence appended */
        OPTION_U64,         /* uint64_t */
        OPTION_DURATION_MS, /* uint64_t, from "250ms", "3s" */
        OPTION_SIZE,        /* uint64_t, from "64M" */
};

struct option_strings {
        const char **items; /* freed by option_strings_done(); the texts are argv's */
        size_t n;
};

struct option_spec {
        const char *name; /* without the dashes */
        char letter;      /* 0: none */
        enum option_type type;
        size_t offset;     /* of the member in the target struct */
        const char *value; /* the word for the value in --help; NULL for flags */
        const char *help;
};

struct option_table {
        const char *usage;   /* "wbctl why --policy FILE HOST[:PORT]" */
        const char *summary; /* one sentence */
        const char *example; /* a line that can be pasted, shown by --help */
        const struct option_spec *specs;
        size_t specs_n;
        bool intermixed; /* options may also stand behind positional arguments, up to -- */
};

/* What options_parse() says when the caller is not to go on. */
#define OPTIONS_E_HELP  1 /* --help was given and has been printed to stdout: exit 0 */
#define OPTIONS_E_USAGE 2 /* wrong usage, said on stderr: exit 2 */

/*
 * Parses argv (argv[0] is skipped) into the struct at target, which holds the defaults. *ret_rest points at the
 * positional arguments, *ret_rest_n of them; it is argv itself, reordered if intermixed.
 * 0, OPTIONS_E_HELP, OPTIONS_E_USAGE, or -ENOMEM.
 */
int options_parse(
        const struct option_table *table, int argc, char **argv, void *target, char ***ret_rest, size_t *ret_rest_n);

/* Says "PROGRAM: text" and how to get help on stderr; answers OPTIONS_E_USAGE. */
int options_usage_error(const struct option_table *table, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

void option_strings_done(struct option_strings *strings);
