/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The lines of an audit log, one after the other over all its files, oldest first; also while a broker writes. Needs
 * the memory of one line, whatever the files' size. broker/audit_file.h says which files there are.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum audit_text_kind {
        AUDIT_TEXT_LINE,
        AUDIT_TEXT_TORN,     /* bytes at a file's end without a newline */
        AUDIT_TEXT_TOO_LONG, /* longer than AUDIT_LINE_MAX_BYTES; its text is not given */
};

struct audit_text {
        enum audit_text_kind kind;
        const char *file; /* as it was given, or DIR/NAME; lives as long as the reader */
        uint64_t line;    /* from 1 */
        const char *text; /* n bytes and a NUL, without the newline; may hold any byte. Until the next call. */
        size_t n;
};

struct audit_reader;

/* 0; -ENOENT (no log there); another negative errno. */
int audit_reader_open_dir(const char *dir, struct audit_reader **ret);

/* Regular files are read in the order of their first records, others as they stand. paths outlive the reader. */
int audit_reader_open_files(char *const *paths, size_t n, struct audit_reader **ret);

void audit_reader_free(struct audit_reader *reader); /* takes NULL */

size_t audit_reader_files_n(const struct audit_reader *reader);

#define AUDIT_READER_E_LINE 1

/* AUDIT_READER_E_LINE with one in *ret, 0 at the end, or a negative errno: then *ret->file is the file that cannot be
 * read. */
int audit_reader_next(struct audit_reader *reader, struct audit_text *ret);
