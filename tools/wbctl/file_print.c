/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/file_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "proto/base/cleanup.h"

static const struct {
        const char *word;
        char letter;
} types[] = {
        [WB__FILE_TYPE__REGULAR] = {"file", '-'},
        [WB__FILE_TYPE__DIRECTORY] = {"directory", 'd'},
        [WB__FILE_TYPE__SYMLINK] = {"symlink", 'l'},
        [WB__FILE_TYPE__FIFO] = {"fifo", 'p'},
        [WB__FILE_TYPE__SOCKET] = {"socket", 's'},
        [WB__FILE_TYPE__CHARACTER_DEVICE] = {"character_device", 'c'},
        [WB__FILE_TYPE__BLOCK_DEVICE] = {"block_device", 'b'},
        [WB__FILE_TYPE__HARD_LINK] = {"hard_link", 'h'},
};

static void print_bytes(const ProtobufCBinaryData *text)
{
        for (size_t i = 0; i < text->len; i++) {
                uint8_t b = text->data[i];

                if (b >= 0x20 && b < 0x7f && b != '\\')
                        putchar(b);
                else
                        printf("\\x%02x", b);
        }
}

/* A JSON string holds text: what is no UTF-8 is written byte by byte, as Latin-1. */
static json_t *bytes_json(const ProtobufCBinaryData *text)
{
        _cleanup_free_ char *latin1 = NULL;
        json_t *json = json_stringn((const char *)text->data, text->len);
        size_t n = 0;

        if (json)
                return json;
        latin1 = malloc(2 * text->len + 1);
        for (size_t i = 0; latin1 && i < text->len; i++) {
                uint8_t b = text->data[i];

                if (b >= 0x80)
                        latin1[n++] = (char)(0xc0 | b >> 6);
                latin1[n++] = (char)(b < 0x80 ? b : 0x80 | (b & 0x3f));
        }
        return latin1 ? json_stringn(latin1, n) : NULL;
}

static void format_time(const Wb__FileEntry *e, char *to, size_t room)
{
        time_t t = (time_t)e->mtime_s;
        struct tm tm;

        if (!gmtime_r(&t, &tm) || strftime(to, room, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
                (void)snprintf(to, room, "%" PRId64, e->mtime_s);
}

static void mode_text(const Wb__FileEntry *e, char ret[11])
{
        static const char letters[] = "rwxrwxrwx";

        ret[0] = types[e->type].letter;
        for (int i = 0; i < 9; i++)
                ret[i + 1] = e->mode & (0400u >> i) ? letters[i] : '-';
        if (e->mode & 04000)
                ret[3] = e->mode & 0100 ? 's' : 'S';
        if (e->mode & 02000)
                ret[6] = e->mode & 010 ? 's' : 'S';
        if (e->mode & 01000)
                ret[9] = e->mode & 01 ? 't' : 'T';
        ret[10] = '\0';
}

static json_t *entry_json(const ProtobufCBinaryData *name, const Wb__FileEntry *e)
{
        char mode[8], mtime[40];
        json_t *root;

        (void)snprintf(mode, sizeof(mode), "%04o", e->mode & 07777);
        format_time(e, mtime, sizeof(mtime));
        root = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:I}", "name", bytes_json(name), "type",
                types[e->type].word, "mode", mode, "size", (json_int_t)e->size, "disk_bytes", (json_int_t)e->disk_bytes,
                "uid", (json_int_t)e->uid, "gid", (json_int_t)e->gid, "mtime", mtime, "links", (json_int_t)e->links,
                "inode", (json_int_t)e->inode);
        if (e->link.len)
                (void)json_object_set_new(root, "link", bytes_json(&e->link));
        return root;
}

void file_print_entry(struct file_printer *p, const char *path, const Wb__FileEntry *e)
{
        ProtobufCBinaryData own = {.len = strlen(path), .data = (uint8_t *)(uintptr_t)path};
        const ProtobufCBinaryData *name = p->is_list ? &e->path : &own;
        char mode[11], mtime[40];

        if (p->json) {
                json_t *root = entry_json(name, e);

                if (p->is_list)
                        fputs(p->begun ? ",\n" : "[\n", stdout);
                (void)json_dumpf(root, stdout, p->is_list ? JSON_COMPACT : JSON_INDENT(2));
                if (!p->is_list)
                        putchar('\n');
                json_decref(root);
                p->begun = true;
                return;
        }
        mode_text(e, mode);
        format_time(e, mtime, sizeof(mtime));
        printf("%s %5u %5u %12" PRIu64 " %s ", mode, e->uid, e->gid, e->size, mtime);
        print_bytes(name);
        if (e->link.len) {
                fputs(" -> ", stdout);
                print_bytes(&e->link);
        }
        putchar('\n');
}

void file_print_end(struct file_printer *p, bool whole)
{
        if (p->json && p->is_list && whole)
                puts(p->begun ? "\n]" : "[]");
}

void file_print_event(bool json, const Wb__FileEvent *e)
{
        if (json) {
                json_t *kinds = json_array(), *root;

                for (size_t i = 0; i < e->n_kinds; i++)
                        (void)json_array_append_new(kinds, json_string(e->kinds[i]));
                root = json_pack("{s:o, s:o, s:b, s:I}", "kinds", kinds, "name", bytes_json(&e->name), "directory",
                        (int)e->directory, "cookie", (json_int_t)e->cookie);
                (void)json_dumpf(root, stdout, JSON_COMPACT);
                json_decref(root);
        } else {
                for (size_t i = 0; i < e->n_kinds; i++)
                        printf("%s%s", i ? "," : "", e->kinds[i]);
                putchar(' ');
                print_bytes(&e->name);
        }
        putchar('\n');
        (void)fflush(stdout);
}
