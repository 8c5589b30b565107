/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the commands of `wbctl audit` share; each is a file of its own, and audit.c has their table. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/options.h"
#include "tools/wbctl/audit_line.h"
#include "tools/wbctl/audit_reader.h"

#define AUDIT_DEFAULT_DIR "/var/log/wbbroker"

/* argv[0] is the command's name; they answer the exit status. */
int audit_tail(int argc, char **argv);
int audit_verify(int argc, char **argv);
int audit_query(int argc, char **argv);
int audit_replay(int argc, char **argv);
int audit_report(int argc, char **argv);

/* A log from --dir or from files; the default where neither is given. 0, OPTIONS_E_USAGE (said: both, or there is none
 * there), or a negative errno that was said. */
int audit_open(const struct option_table *table, const char *dir, char *const *files, size_t files_n,
        struct audit_reader **ret);

/* Hands each record; what is none is counted. The handler answers false to end it. 0 or a negative errno that was said.
 */
typedef bool (*audit_record_handler)(void *userdata, const struct audit_text *text, const struct audit_line *line);
int audit_each(struct audit_reader *reader, audit_record_handler handler, void *userdata, uint64_t *ret_bad_n);

/* On stderr, if there are any: lines that were passed over. */
void audit_say_bad(uint64_t bad_n);

/* One record as a row of the table that people get, or as its line (escaped, should it hold what steers a terminal). */
void audit_print_head(void);
void audit_print_row(const struct audit_line *line);
void audit_print_line(const struct audit_text *text, const struct audit_line *line);

/* A line of JSON, printable ASCII whatever it holds. 0 or a negative errno. */
int audit_print_json(const struct json_t *value);

/* "name:443", "[2001:db8::1]:443", "name", or "-". */
void audit_format_target(const struct audit_line *line, char *ret_text, size_t room);
