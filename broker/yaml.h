/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Strict YAML with positions, for policies and the broker's configuration. One document, at most YAML_MAX_BYTES, no
 * alias, anchor, tag or merge, bounded depth and size, no duplicate key (quoted or not); CRLF and a byte order mark are fine. Files are
 * bound to structs by tables; every error has the position of the offending key or value. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YAML_MAX_BYTES (1024u * 1024u)

/* Where a file is wrong and why. `FILE:LINE:COLUMN: message`; lines and columns (bytes) from 1; line 0: the file as a whole. */
struct yaml_error {
        char *file;             /* freed by yaml_error_done() */
        unsigned line;
        unsigned column;
        char message[512];      /* one line, printable ASCII: what came from the file is escaped */
};
void yaml_error_done(struct yaml_error *e);
void yaml_error_print(const struct yaml_error *e);      /* to stderr */

enum yaml_kind {
        YAML_SCALAR,
        YAML_SEQUENCE,
        YAML_MAPPING,
};

struct yaml_node {
        enum yaml_kind kind;
        unsigned line;
        unsigned column;
        bool plain;                     /* a scalar without quotes: only such is a number, a boolean or null */
        char *text;                     /* scalar, NUL-terminated; text_n counts a NUL inside */
        size_t text_n;
        struct yaml_node **items;       /* sequence: the values; mapping: key, value, key, value ... */
        size_t items_n;
};

struct yaml_document;

/*
 * Parses; file is the name for messages. 0; YAML_E_INVALID with *ret_error set; -ENOMEM. The nodes live as long as the document.
 */
#define YAML_E_INVALID 1
int yaml_parse(const char *file, const char *text, size_t n, struct yaml_document **ret, struct yaml_error *ret_error);
void yaml_document_free(struct yaml_document *d);
const struct yaml_node *yaml_root(const struct yaml_document *d);
const char *yaml_file(const struct yaml_document *d);

/* Sets *e for node's position; answers YAML_E_INVALID. */
struct yaml_context {
        const struct yaml_document *document;
        struct yaml_error *error;
        void *userdata;                 /* the caller's, for its own value functions */
};
int yaml_fail(const struct yaml_context *c, const struct yaml_node *at, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* One key of a mapping: how its value becomes a member of the target struct. */
struct yaml_field {
        const char *key;
        int (*bind)(const struct yaml_context *c, const struct yaml_node *value, const struct yaml_field *field, void *member);
        size_t offset;
        const void *detail;             /* of bind: a range, an enum's words, the item's fields */
        bool required;
};

/* 0, YAML_E_INVALID (unknown key with the nearest known one in the message, missing key, what bind() says), -ENOMEM. */
int yaml_bind(const struct yaml_context *c, const struct yaml_node *mapping, const struct yaml_field *fields, size_t fields_n, void *target);

/* Stock binders. What they allocate belongs to the target. */
struct yaml_range { uint64_t least, most; };
struct yaml_words { const char *const *words; size_t n; };      /* an enum's names, by value */
struct yaml_object { const struct yaml_field *fields; size_t fields_n; };
int yaml_bind_u64(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member);    /* uint64_t; detail: yaml_range */
int yaml_bind_bool(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member);   /* bool */
int yaml_bind_string(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member); /* char *, no control bytes */
int yaml_bind_enum(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member);   /* an enum as int; detail: yaml_words */
int yaml_bind_object(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member); /* embedded struct; detail: yaml_object */
