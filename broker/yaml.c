/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/yaml.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/base/cleanup.h"

struct yaml_document {
        char *file;
        struct yaml_node *root;
};

/*
 * Walks over the text from front to back: libyaml counts in characters from the beginning, people in lines and bytes.
 * What YAML 1.1 calls a line break beside CR and LF is none to an editor.
 */
struct cursor {
        const char *text;
        size_t n;
        size_t byte, character;
        size_t line_start; /* a byte */
        unsigned line;     /* from 0 */
};

struct builder {
        yaml_parser_t parser;
        struct cursor cursor;
        struct yaml_document *document;
        struct yaml_error *error;
        struct yaml_node *open[YAML_MAX_DEPTH];
        size_t depth;
        size_t nodes_n;
        bool is_second; /* a document has begun before */
};

void yaml_error_done(struct yaml_error *e)
{
        free(e->file);
        e->file = NULL;
}

void yaml_error_print(const struct yaml_error *e)
{
        const char *file = e->file ? e->file : "?";

        if (e->line)
                fprintf(stderr, "%s:%u:%u: %s\n", file, e->line, e->column, e->message);
        else
                fprintf(stderr, "%s: %s\n", file, e->message);
}

/* One line of printable ASCII, whatever of the file is quoted in it. */
static void escape(const char *from, char *to, size_t room)
{
        size_t at = 0;

        for (; *from && at + 5 <= room; from++) {
                unsigned char c = (unsigned char)*from;

                if (c >= 0x20 && c < 0x7f)
                        to[at++] = *from;
                else
                        at += (size_t)sprintf(to + at, "\\x%02x", c);
        }
        to[at] = '\0';
}

static int set_error(struct yaml_error *e, const char *file, unsigned line, unsigned column, const char *format,
        va_list ap) __attribute__((format(printf, 5, 0)));

static int set_error(
        struct yaml_error *e, const char *file, unsigned line, unsigned column, const char *format, va_list ap)
{
        char text[sizeof(e->message)];

        (void)vsnprintf(text, sizeof(text), format, ap);
        escape(text, e->message, sizeof(e->message));
        e->file = strdup(file);
        e->line = line;
        e->column = column;
        return e->file ? YAML_E_INVALID : -ENOMEM;
}

int yaml_error_set(struct yaml_error *e, const char *file, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = set_error(e, file, 0, 0, format, ap);
        va_end(ap);
        return r;
}

int yaml_fail(const struct yaml_context *c, const struct yaml_node *at, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = set_error(c->error, c->document->file, at->line, at->column, format, ap);
        va_end(ap);
        return r;
}

static void cursor_step(struct cursor *c)
{
        char here = c->text[c->byte++];
        bool is_break = here == '\n' || (here == '\r' && !(c->byte < c->n && c->text[c->byte] == '\n'));

        while (c->byte < c->n && ((unsigned char)c->text[c->byte] & 0xc0) == 0x80)
                c->byte++;
        c->character++;
        if (is_break) {
                c->line++;
                c->line_start = c->byte;
        }
}

/* Marks come in ascending order but for an error's; that one starts again. */
static void cursor_seek(struct cursor *c, size_t character)
{
        if (character < c->character)
                *c = (struct cursor){.text = c->text, .n = c->n};
        while (c->character < character && c->byte < c->n)
                cursor_step(c);
}

static unsigned cursor_column(const struct cursor *c)
{
        return (unsigned)(c->byte - c->line_start) + 1;
}

static int fail_here(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail_here(struct builder *b, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = set_error(b->error, b->document->file, b->cursor.line + 1, cursor_column(&b->cursor), format, ap);
        va_end(ap);
        return r;
}

/* libyaml's own error: the reader's have a byte's offset, the others a mark. */
static int fail_syntax(struct builder *b)
{
        const yaml_parser_t *p = &b->parser;
        const char *hint = "";

        if (p->error == YAML_MEMORY_ERROR)
                return -ENOMEM;
        if (p->error == YAML_READER_ERROR) {
                cursor_seek(&b->cursor, 0);
                while (b->cursor.byte < p->problem_offset && b->cursor.byte < b->cursor.n)
                        cursor_step(&b->cursor);
                return fail_here(b, "this is no UTF-8 text: %s", p->problem);
        }
        cursor_seek(&b->cursor, p->problem_mark.index);
        if (p->context && strstr(p->context, "alias"))
                hint = "; a text that begins with a star needs quotes";
        return fail_here(b, "%s%s%s%s", p->problem ? p->problem : "this is no YAML", p->context ? " " : "",
                p->context ? p->context : "", hint);
}

static void node_free(struct yaml_node *node)
{
        for (size_t i = 0; i < node->items_n; i++)
                node_free(node->items[i]); /* no deeper than YAML_MAX_DEPTH */
        free(node->items);
        free(node->text);
        free(node);
}
DEFINE_CLEANUP(struct yaml_node *, node_free);

void yaml_document_free(struct yaml_document *d)
{
        if (!d)
                return;
        if (d->root)
                node_free(d->root);
        free(d->file);
        free(d);
}
DEFINE_CLEANUP(struct yaml_document *, yaml_document_free);

const struct yaml_node *yaml_root(const struct yaml_document *d)
{
        return d->root;
}

const char *yaml_file(const struct yaml_document *d)
{
        return d->file;
}

/* The room doubles when the count is a power of two. */
static int append(struct yaml_node *parent, struct yaml_node *node)
{
        size_t n = parent->items_n;

        if ((n & (n - 1)) == 0) {
                struct yaml_node **items = realloc(parent->items, (n ? 2 * n : 1) * sizeof(struct yaml_node *));

                if (!items)
                        return -ENOMEM;
                parent->items = items;
        }
        parent->items[parent->items_n++] = node;
        return 0;
}

/* A node at the cursor, below what is open. It is the document's. */
static int add_node(struct builder *b, enum yaml_kind kind, const unsigned char *tag, struct yaml_node **ret)
{
        _cleanup_(node_freep) struct yaml_node *node = NULL;
        int r = 0;

        if (tag)
                return fail_here(b, "tags such as !!str are not taken here; quotes make a text, nothing else does");
        if (++b->nodes_n > YAML_MAX_NODES)
                return fail_here(b, "the file is too large: more than %u values", YAML_MAX_NODES);
        node = calloc(1, sizeof(*node));
        if (!node)
                return -ENOMEM;
        node->kind = kind;
        node->line = b->cursor.line + 1;
        node->column = cursor_column(&b->cursor);
        if (b->depth)
                r = append(b->open[b->depth - 1], node);
        else
                b->document->root = node;
        if (r == 0)
                *ret = STEAL(node);
        return r;
}

static int take_scalar(struct builder *b, const yaml_event_t *event)
{
        size_t n = event->data.scalar.length;
        struct yaml_node *node = NULL;
        int r = add_node(b, YAML_SCALAR, event->data.scalar.tag, &node);

        if (r != 0)
                return r;
        assert(node);
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->text = malloc(n + 1);
        if (!node->text)
                return -ENOMEM;
        memcpy(node->text, event->data.scalar.value, n);
        node->text[n] = '\0';
        node->text_n = n;
        return 0;
}

static int open_node(struct builder *b, enum yaml_kind kind, const unsigned char *tag)
{
        struct yaml_node *node = NULL;
        int r;

        if (b->depth == YAML_MAX_DEPTH)
                return fail_here(b, "nested deeper than %u levels", YAML_MAX_DEPTH);
        r = add_node(b, kind, tag, &node);
        if (r == 0)
                b->open[b->depth++] = node;
        return r;
}

static int take_event(struct builder *b, const yaml_event_t *event)
{
        cursor_seek(&b->cursor, event->start_mark.index);
        switch (event->type) {
        case YAML_DOCUMENT_START_EVENT:
                if (b->is_second)
                        return fail_here(b, "a second document begins: which of them would be in force?");
                b->is_second = true;
                return 0;
        case YAML_ALIAS_EVENT:
                return fail_here(b, "aliases are not taken here; a text that begins with a star needs quotes");
        case YAML_SCALAR_EVENT: return take_scalar(b, event);
        case YAML_SEQUENCE_START_EVENT: return open_node(b, YAML_SEQUENCE, event->data.sequence_start.tag);
        case YAML_MAPPING_START_EVENT: return open_node(b, YAML_MAPPING, event->data.mapping_start.tag);
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT: b->depth--; return 0;
        case YAML_NO_EVENT:
        case YAML_STREAM_START_EVENT:
        case YAML_STREAM_END_EVENT:
        case YAML_DOCUMENT_END_EVENT: return 0;
        }
        return 0;
}

static int take_all(struct builder *b)
{
        const struct yaml_node *root;
        bool at_end = false;

        while (!at_end) {
                yaml_event_t event;
                int r;

                if (!yaml_parser_parse(&b->parser, &event))
                        return fail_syntax(b);
                at_end = event.type == YAML_STREAM_END_EVENT;
                r = take_event(b, &event);
                yaml_event_delete(&event);
                if (r != 0)
                        return r;
        }
        root = b->document->root;
        if (root && !(root->kind == YAML_SCALAR && root->plain && root->text_n == 0))
                return 0;
        cursor_seek(&b->cursor, 0);
        return fail_here(b, "the file is empty");
}

int yaml_parse(const char *file, const char *text, size_t n, struct yaml_document **ret, struct yaml_error *ret_error)
{
        static const char byte_order_mark[] = "\xef\xbb\xbf";
        _cleanup_(yaml_document_freep) struct yaml_document *document = calloc(1, sizeof(*document));
        struct builder b = {.document = document, .error = ret_error};
        int r;

        if (!document)
                return -ENOMEM;
        document->file = strdup(file);
        if (!document->file)
                return -ENOMEM;
        if (n > YAML_MAX_BYTES)
                return yaml_error_set(ret_error, file, "the file is too large: more than %u bytes", YAML_MAX_BYTES);
        if (n >= 3 && memcmp(text, byte_order_mark, 3) == 0) {
                text += 3;
                n -= 3;
        }
        b.cursor = (struct cursor){.text = text, .n = n};
        if (!yaml_parser_initialize(&b.parser))
                return -ENOMEM;
        yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, n);
        r = take_all(&b);
        yaml_parser_delete(&b.parser);
        if (r == 0)
                *ret = STEAL(document);
        return r;
}
