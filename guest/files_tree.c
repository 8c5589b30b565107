/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "proto/base/cleanup.h"
#include "proto/tree/reader.h"
#include "proto/tree/writer.h"
#include "proto/wire/codec.h"

DEFINE_CLEANUP(struct tree_writer *, tree_writer_free);

/* ---- get */

static int on_entry(void *userdata, const Wb__FileEntry *e)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        m.body_case = WB__FROM_AGENT__BODY_FILE_ENTRY;
        m.file_entry = (Wb__FileEntry *)(uintptr_t)e;
        return talk_send(userdata, &m);
}

static int on_data(void *userdata, uint64_t offset, const uint8_t *bytes, size_t n)
{
        Wb__FileData data = WB__FILE_DATA__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        data.offset = offset;
        data.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
        m.body_case = WB__FROM_AGENT__BODY_FILE_DATA;
        m.file_data = &data;
        return talk_send(userdata, &m);
}

static const struct tree_reader_handler handler = {.entry = on_entry, .data = on_data};

/* Devices are not opened, not even when they are what is asked for. */
static int open_source(const Wb__FilePlace *place, int *ret_fd)
{
        _cleanup_close_ int fd = -1;
        struct stat st;
        int r = place_open(place, &fd);

        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
                return place_reopen(fd, O_RDONLY | O_NOCTTY | (S_ISDIR(st.st_mode) ? O_DIRECTORY : 0), ret_fd);
        *ret_fd = steal_fd(&fd);
        return 0;
}

int files_get(struct talk *t, const Wb__FileGet *m)
{
        struct tree_reader_options options = {
                .recursive = m->recursive, .special = m->special, .one_filesystem = m->one_filesystem};
        struct tree_reader_report report;
        _cleanup_close_ int fd = -1;
        int r = open_source(m->place, &fd);

        if (r < 0)
                return r;
        r = tree_read(fd, &options, &handler, t, &report);
        if (r < 0 && report.fault[0])
                return talk_fail_errno(t, r, report.fault, strlen(report.fault));
        return r < 0 ? r : talk_send_done(t, report.entries, report.bytes, report.skipped);
}

/* ---- put */

struct destination {
        int dir;
        char name[TREE_NAME_MAX + 1];
        bool has_name;
};

static int inside(const Wb__FilePut *m, int dir, struct destination *ret)
{
        ret->dir = dir;
        ret->has_name = !m->contents;
        if (m->contents)
                return 0;
        if (!tree_name_is_good((const char *)m->name.data, m->name.len) || memchr(m->name.data, '/', m->name.len))
                return -EINVAL;
        memcpy(ret->name, m->name.data, m->name.len);
        ret->name[m->name.len] = '\0';
        return 0;
}

/* As cp(1): into the place if it is a folder, else in the place. */
static int find_destination(const Wb__FilePut *m, struct destination *ret)
{
        _cleanup_close_ int fd = -1;
        struct stat st;
        int r;

        if (m->contents || m->name.len) {
                r = place_open(m->place, &fd);
                if (r == 0 && fstat(fd, &st) < 0)
                        r = -errno;
                if (r == 0 && S_ISDIR(st.st_mode))
                        return inside(m, steal_fd(&fd), ret);
                if (r < 0 && r != -ENOENT)
                        return r;
                if (m->contents && r == 0)
                        return -ENOTDIR;
                if (!m->contents && m->place->path.data[m->place->path.len - 1] == '/')
                        return r < 0 ? r : -ENOTDIR;
        }
        r = place_open_parent(m->place, &ret->dir, ret->name);
        ret->has_name = true;
        if (r == 0 && strcmp(ret->name, ".") == 0)
                return -EISDIR;
        return r;
}

enum stream {
        STREAM_GOES_ON,
        STREAM_ENDED,
};

/* One message of the host's stream. */
static int take(struct talk *t, struct tree_writer *w, enum stream *ret)
{
        Wb__ToAgent *m;
        int r = talk_receive(t, &m);

        if (r < 0)
                return r;
        *ret = STREAM_GOES_ON;
        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_FILE_ENTRY: r = tree_writer_entry(w, m->file_entry); break;
        case WB__TO_AGENT__BODY_FILE_DATA:
                r = tree_writer_data(w, m->file_data->offset, m->file_data->data.data, m->file_data->data.len);
                break;
        case WB__TO_AGENT__BODY_FILE_END: *ret = STREAM_ENDED; break;
        default: r = -EBADMSG;
        }
        codec_free_to_agent(m);
        return r;
}

static int write_stream(struct talk *t, struct tree_writer *w, struct tree_writer_report *ret)
{
        enum stream stream = STREAM_GOES_ON;
        int r = talk_send_ready(t);

        while (r == 0 && stream == STREAM_GOES_ON)
                r = take(t, w, &stream);
        return r == 0 ? tree_writer_end(w, ret) : r;
}

int files_put(struct talk *t, const Wb__FilePut *m)
{
        struct tree_writer_options options = {.keep_owner = m->keep_owner, .special = m->special, .synchronize = true};
        _cleanup_(tree_writer_freep) struct tree_writer *w = NULL;
        struct tree_writer_report report;
        struct destination to = {.dir = -1};
        char fault[512];
        int r = files_owner(t, m->owner, &options.uid, &options.gid);

        if (r == 0)
                r = find_destination(m, &to);
        if (r == 0)
                r = tree_writer_new(to.dir, to.has_name ? to.name : NULL, &options, &w);
        if (r != 0)
                return r;
        r = write_stream(t, w, &report);
        if (r == 0)
                return talk_send_done(t, report.entries, report.bytes, report.skipped);
        (void)snprintf(fault, sizeof(fault), "%s", tree_writer_fault(w));
        tree_writer_free(STEAL(w)); /* before the answer: whoever hears it finds nothing half done */
        if (r < 0)
                return fault[0] ? talk_fail_errno(t, r, fault, strlen(fault)) : r;
        talk_fail(t, "refused", fault);
        return FILES_E_SAID;
}
