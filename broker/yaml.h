/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Strict YAML with positions, for policies and the broker's configuration. One document of UTF-8, at most
 * YAML_MAX_BYTES, without aliases (an anchor that nobody uses is harmless), tags or merges, bounded in depth and nodes;
 * CRLF and a byte order mark are fine. Files are bound to structs by tables, which refuse unknown and duplicate keys
 * (quoted or not); every error has the position of the offending key or value, and the first one in the file is the one
 * that is told. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YAML_MAX_BYTES (1024u * 1024u)
#define YAML_MAX_DEPTH 32u            /* our deepest file has six levels */
#define YAML_MAX_NODES (256u * 1024u) /* some 30 MB: a file of YAML_MAX_BYTES with nothing but rules has fewer */

/*
 * Where a file is wrong and why. `FILE:LINE:COLUMN: message`; lines and columns (bytes) from 1; line 0: the file as a
 * whole.
 */
struct yaml_error {
        char *file; /* freed by yaml_error_done() */
        unsigned line;
        unsigned column;
        char message[512]; /* one line, printable ASCII: what came from the file is escaped */
};
void yaml_error_done(struct yaml_error *e);
void yaml_error_print(const struct yaml_error *e); /* to stderr */

/* For errors of a file as a whole, such as one that cannot be read; answers YAML_E_INVALID. */
int yaml_error_set(struct yaml_error *e, const char *file, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

enum yaml_kind {
        YAML_SCALAR,
        YAML_SEQUENCE,
        YAML_MAPPING,
};

struct yaml_node {
        enum yaml_kind kind;
        unsigned line;
        unsigned column;
        bool plain; /* a scalar without quotes: only such is a number, a boolean or null */
        char *text; /* scalar, NUL-terminated; text_n counts a NUL inside */
        size_t text_n;
        struct yaml_node **items; /* sequence: the values; mapping: key, value, key, value ... */
        size_t items_n;
};

struct yaml_document;

/*
 * Parses; file is the name for messages. 0; YAML_E_INVALID with *ret_error set; -ENOMEM. The nodes live as long as the
 * document.
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
        void *userdata; /* the caller's, for its own value functions */
};
int yaml_fail(const struct yaml_context *c, const struct yaml_node *at, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* One key of a mapping: how its value becomes a member of the target struct. */
struct yaml_field;
typedef int yaml_bind_fn(
        const struct yaml_context *c, const struct yaml_node *value, const struct yaml_field *field, void *member);
struct yaml_field {
        const char *key;
        yaml_bind_fn *bind;
        size_t offset;
        const void *detail; /* of bind: a range, an enum's words, the item's fields */
        bool required;
};

/* 0, YAML_E_INVALID (unknown key with the nearest known one in the message, missing key, what bind() says), -ENOMEM. */
int yaml_bind(const struct yaml_context *c, const struct yaml_node *mapping, const struct yaml_field *fields,
        size_t fields_n, void *target);

/* The value of a key, or NULL. The first, if the mapping was not bound and has it twice. */
const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);

/*
 * Stock binders. What they allocate belongs to the target, also after a failure: start from a zeroed target, and free
 * it whole. A plain scalar that YAML reads as null, a boolean or a number is no string; a quoted one is nothing but a
 * string.
 */
yaml_bind_fn yaml_bind_u64;    /* uint64_t; detail: yaml_range */
yaml_bind_fn yaml_bind_port;   /* uint16_t, 1 to 65535 */
yaml_bind_fn yaml_bind_bool;   /* bool */
yaml_bind_fn yaml_bind_string; /* char *, no control bytes */
yaml_bind_fn yaml_bind_enum;   /* an enum as int; detail: yaml_words */
yaml_bind_fn yaml_bind_object; /* embedded struct; detail: yaml_object */
yaml_bind_fn yaml_bind_list;   /* T *, calloc()ed; detail: yaml_list */

struct yaml_range {
        uint64_t least, most;
};

/* An enum's names, by value. */
struct yaml_words {
        const char *const *words;
        size_t n;
};

struct yaml_object {
        const struct yaml_field *fields;
        size_t fields_n;
};

/*
 * A list: member is a T *, calloc()ed, and the size_t at count_offset of the same target its length. Each item is bound
 * by item.bind with item.detail; item.key stands in messages. Where an item fails, the count still says how many were
 * allocated (zeroed or bound).
 *
 *     static const struct yaml_list ports = {
 *             .item = {"ports", yaml_bind_port, 0, NULL, false},
 *             .item_bytes = sizeof(uint16_t),
 *             .most = 1024,
 *             .count_offset = offsetof(struct rule, ports_n),
 *     };
 *     {"ports", yaml_bind_list, offsetof(struct rule, ports), &ports},
 */
struct yaml_list {
        struct yaml_field item; /* its offset is not used */
        size_t item_bytes;
        size_t most; /* items */
        size_t count_offset;
        bool may_be_empty;
};
