/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/copy.h"

#define BLOCK_BYTES (64u * 1024u)

static const struct {
        Wb__FileType type;
        mode_t mode;
} types[] = {
        {WB__FILE_TYPE__REGULAR, AE_IFREG},
        {WB__FILE_TYPE__DIRECTORY, AE_IFDIR},
        {WB__FILE_TYPE__SYMLINK, AE_IFLNK},
        {WB__FILE_TYPE__FIFO, AE_IFIFO},
        {WB__FILE_TYPE__SOCKET, AE_IFSOCK},
        {WB__FILE_TYPE__CHARACTER_DEVICE, AE_IFCHR},
        {WB__FILE_TYPE__BLOCK_DEVICE, AE_IFBLK},
};

/* libarchive's names are the locale's; ours are bytes, most often UTF-8. */
static void use_utf8(void)
{
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

/* ---- from a tar to the guest */

DEFINE_CLEANUP(struct archive *, archive_read_free);

static int bad_tar(const char *name, const char *text)
{
        copy_say(name ? name : "stdin", text ? text : "no tar");
        return -EBADMSG;
}

/* "./a/b/" to "a/b", "." and "./" to "". What leads out of the tree is refused, not bent. */
static bool strict_name(const char *name, ProtobufCBinaryData *ret)
{
        size_t n;

        while (name && name[0] == '.' && name[1] == '/')
                for (name++; *name == '/'; name++)
                        ;
        if (!name)
                return false;
        if (strcmp(name, ".") == 0)
                name = "";
        n = strlen(name);
        while (n && name[n - 1] == '/')
                n--;
        *ret = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)name};
        return (n == 0 && !*name) || tree_name_is_good(name, n);
}

static int fill_entry(struct archive_entry *a, Wb__FileEntry *e)
{
        const char *name = archive_entry_pathname(a), *hard_link = archive_entry_hardlink(a),
                   *symlink = archive_entry_symlink(a);

        if (!strict_name(name, &e->path))
                return bad_tar(name, "a name that leads out of the tree is refused");
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
                if (archive_entry_filetype(a) == types[i].mode)
                        e->type = types[i].type;
        e->mode = archive_entry_perm(a) & 07777;
        e->size = e->type == WB__FILE_TYPE__REGULAR ? (uint64_t)archive_entry_size(a) : 0;
        e->mtime_s = archive_entry_mtime(a);
        e->mtime_ns = (uint32_t)archive_entry_mtime_nsec(a);
        e->uid = (uint32_t)archive_entry_uid(a);
        e->gid = (uint32_t)archive_entry_gid(a);
        e->device_major = (uint32_t)archive_entry_rdevmajor(a);
        e->device_minor = (uint32_t)archive_entry_rdevminor(a);
        if (hard_link) {
                e->type = WB__FILE_TYPE__HARD_LINK;
                e->size = 0;
                if (!strict_name(hard_link, &e->link))
                        return bad_tar(name, "a hard link that leads out of the tree is refused");
        } else if (symlink) {
                e->link = (ProtobufCBinaryData){.len = strlen(symlink), .data = (uint8_t *)(uintptr_t)symlink};
        }
        return 0;
}

static int send_contents(struct copy *c, struct archive *tar, const char *name)
{
        for (;;) {
                const void *block;
                size_t n;
                la_int64_t offset;
                int r = archive_read_data_block(tar, &block, &n, &offset);

                if (r == ARCHIVE_EOF)
                        return 0;
                if (r < ARCHIVE_WARN)
                        return bad_tar(name, archive_error_string(tar));
                for (size_t at = 0; at < n;) {
                        size_t k = n - at < WB_CHUNK_MAX_BYTES ? n - at : WB_CHUNK_MAX_BYTES;

                        r = copy_send_data(c, (uint64_t)offset + at, (const uint8_t *)block + at, k);
                        if (r < 0)
                                return r;
                        at += k;
                }
        }
}

static int send_one(struct copy *c, struct archive *tar, struct archive_entry *a)
{
        Wb__FileEntry e = WB__FILE_ENTRY__INIT;
        int r = fill_entry(a, &e);

        if (r == 0)
                r = copy_send_entry(c, &e);
        if (r == 0 && e.type == WB__FILE_TYPE__REGULAR)
                r = send_contents(c, tar, archive_entry_pathname(a));
        return r;
}

int copy_tar_send(struct copy *c)
{
        _cleanup_(archive_read_freep) struct archive *tar = archive_read_new();
        struct archive_entry *a;
        int r;

        use_utf8();
        if (!tar)
                return -ENOMEM;
        (void)archive_read_support_format_tar(tar);
        (void)archive_read_support_format_empty(tar);
        (void)archive_read_support_filter_gzip(tar);
        (void)archive_read_support_filter_xz(tar);
        (void)archive_read_support_filter_zstd(tar);
        if (archive_read_open_fd(tar, STDIN_FILENO, BLOCK_BYTES) != ARCHIVE_OK)
                return bad_tar(NULL, archive_error_string(tar));
        while ((r = archive_read_next_header(tar, &a)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
                r = send_one(c, tar, a);
                if (r < 0)
                        return r;
        }
        return r == ARCHIVE_EOF ? 0 : bad_tar(NULL, archive_error_string(tar));
}

/* ---- from the guest to a tar */

struct copy_tar {
        struct archive *archive;
        struct archive_entry *entry;
        char prefix[TREE_NAME_MAX + 1];
        uint64_t position, size; /* of the file that is being written */
        bool in_file;
        bool abandoned;
};

/* What libarchive has to write. Once the tar is not to be whole nothing is: that also ends its attempts to complete it.
 */
static la_ssize_t on_write(struct archive *archive, void *userdata, const void *bytes, size_t n)
{
        struct copy_tar *t = userdata;
        int r = t->abandoned ? -ECANCELED : io_write_full(STDOUT_FILENO, bytes, n);

        if (r == 0)
                return (la_ssize_t)n;
        archive_set_error(archive, -r, "%s", strerrordesc_np(-r));
        return -1;
}

int copy_tar_new(const char *prefix, struct copy_tar **ret)
{
        struct copy_tar *t;

        use_utf8();
        if (isatty(STDOUT_FILENO) == 1) {
                copy_say("stdout", "a tar is not written to a terminal");
                return -ENOTTY;
        }
        t = calloc(1, sizeof(*t));
        if (!t)
                return copy_say_errno("stdout", -ENOMEM), -ENOMEM;
        (void)snprintf(t->prefix, sizeof(t->prefix), "%s", prefix);
        t->archive = archive_write_new();
        t->entry = archive_entry_new();
        if (!t->archive || !t->entry || archive_write_set_format_pax(t->archive) != ARCHIVE_OK ||
                archive_write_set_options(t->archive, "hdrcharset=BINARY") < ARCHIVE_WARN ||
                archive_write_open2(t->archive, t, NULL, on_write, NULL, NULL) != ARCHIVE_OK) {
                copy_tar_free(t);
                copy_say("stdout", "cannot write a tar");
                return -EIO;
        }
        *ret = t;
        return 0;
}

void copy_tar_free(struct copy_tar *t)
{
        if (!t)
                return;
        t->abandoned = true; /* unless it was closed before: no end mark behind what is not whole */
        if (t->archive)
                (void)archive_write_free(t->archive);
        if (t->entry)
                archive_entry_free(t->entry);
        free(t);
}

static int failed(const struct copy_tar *t)
{
        const char *text = archive_error_string(t->archive);

        copy_say("stdout", text ? text : "cannot write the tar");
        return -EIO;
}

static int write_bytes(struct copy_tar *t, const uint8_t *data, size_t n)
{
        while (n) {
                la_ssize_t put = archive_write_data(t->archive, data, n);

                if (put <= 0)
                        return failed(t);
                data += put;
                n -= (size_t)put;
                t->position += (uint64_t)put;
        }
        return 0;
}

/* Holes are told by the entry's map; where there is none they are zeros in the tar. */
static int write_zeros(struct copy_tar *t, uint64_t upto)
{
        static const uint8_t zeros[BLOCK_BYTES];
        int r = 0;

        while (r == 0 && t->position < upto) {
                uint64_t left = upto - t->position;

                r = write_bytes(t, zeros, left < sizeof(zeros) ? (size_t)left : sizeof(zeros));
        }
        return r;
}

static int finish_file(struct copy_tar *t)
{
        int r = t->in_file ? write_zeros(t, t->size) : 0;

        t->in_file = false;
        return r;
}

/* The map is the guest's word: it has to be in order, and within the file. */
static int set_holes(struct copy_tar *t, const Wb__FileEntry *e)
{
        uint64_t at = 0;

        for (size_t i = 0; i < e->n_extents; i++) {
                const Wb__FileExtent *x = e->extents[i];

                if (x->offset < at || x->bytes > e->size || x->offset > e->size - x->bytes)
                        return -EBADMSG;
                archive_entry_sparse_add_entry(t->entry, (la_int64_t)x->offset, (la_int64_t)x->bytes);
                at = x->offset + x->bytes;
        }
        if (e->n_extents && at < e->size)
                archive_entry_sparse_add_entry(t->entry, (la_int64_t)e->size, 0);
        return 0;
}

static int set_name(struct copy_tar *t, const Wb__FileEntry *e)
{
        char name[TREE_PATH_MAX + TREE_NAME_MAX + 2];
        bool root = e->path.len == 0;

        if (!root && !tree_name_is_good((const char *)e->path.data, e->path.len)) {
                copy_say("refused what the guest sent", "a path that leads out of the tree, or is none");
                return -EBADMSG;
        }
        (void)snprintf(name, sizeof(name), "%s%s%.*s", t->prefix[0] ? t->prefix : ".", root ? "" : "/",
                (int)e->path.len, root ? "" : (const char *)e->path.data);
        archive_entry_copy_pathname(t->entry, name);
        return 0;
}

int copy_tar_entry(struct copy_tar *t, const Wb__FileEntry *e)
{
        char link[TREE_PATH_MAX + 2];
        int r = finish_file(t);

        if (r < 0)
                return r;
        archive_entry_clear(t->entry);
        archive_entry_set_size(
                t->entry, e->type == WB__FILE_TYPE__REGULAR ? (la_int64_t)e->size : 0); /* before holes */
        r = set_name(t, e);
        if (r < 0)
                return r;
        if (e->type > WB__FILE_TYPE__BLOCK_DEVICE || e->type == WB__FILE_TYPE__SOCKET || e->open_ended ||
                e->size > INT64_MAX || set_holes(t, e) < 0) {
                copy_say(archive_entry_pathname(t->entry), "cannot go into a tar");
                return -EBADMSG;
        }
        archive_entry_set_filetype(t->entry, types[e->type].mode);
        archive_entry_set_perm(t->entry, e->mode & 07777);
        archive_entry_set_mtime(t->entry, e->mtime_s, e->mtime_ns);
        archive_entry_set_uid(t->entry, e->uid);
        archive_entry_set_gid(t->entry, e->gid);
        archive_entry_set_rdevmajor(t->entry, e->device_major);
        archive_entry_set_rdevminor(t->entry, e->device_minor);
        if (e->type == WB__FILE_TYPE__SYMLINK) {
                (void)snprintf(link, sizeof(link), "%.*s", (int)e->link.len, (const char *)e->link.data);
                archive_entry_copy_symlink(t->entry, link);
        }
        if (archive_write_header(t->archive, t->entry) < ARCHIVE_WARN)
                return failed(t);
        t->in_file = e->type == WB__FILE_TYPE__REGULAR;
        t->position = 0;
        t->size = e->size;
        return 0;
}

int copy_tar_data(struct copy_tar *t, uint64_t offset, const uint8_t *data, size_t n)
{
        int r;

        if (!t->in_file || offset < t->position || offset > t->size || n > t->size - offset) {
                copy_say("refused what the guest sent", "data out of order, or beyond the file's size");
                return -EBADMSG;
        }
        r = write_zeros(t, offset);
        return r < 0 ? r : write_bytes(t, data, n);
}

int copy_tar_end(struct copy_tar *t)
{
        int r = finish_file(t);

        if (r == 0 && archive_write_close(t->archive) != ARCHIVE_OK)
                r = failed(t);
        return r;
}
