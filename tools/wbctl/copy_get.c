/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/tree/writer.h"
#include "proto/wire/codec.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/copy.h"

#define ZEROS_BYTES (64u * 1024u)

/* Where the stream goes: one of the three. */
struct sink {
        struct tree_writer *writer;
        struct copy_tar *tar;
        bool to_stdout;

        bool opened; /* to_stdout: the one file is there */
        uint64_t position, size;
        bool open_ended;
        int dir; /* the writer's */
        char name[TREE_NAME_MAX + 1];
};

static void sink_done(struct sink *s)
{
        tree_writer_free(s->writer);
        copy_tar_free(s->tar);
        (void)close_fd(s->dir);
}

/* ---- stdout: one file's bytes */

static int write_zeros(struct sink *s, uint64_t upto)
{
        static const uint8_t zeros[ZEROS_BYTES];

        while (s->position < upto) {
                size_t n = upto - s->position < ZEROS_BYTES ? (size_t)(upto - s->position) : ZEROS_BYTES;
                int r = io_write_full(STDOUT_FILENO, zeros, n);

                if (r < 0)
                        return copy_say_errno("stdout", r);
                s->position += n;
        }
        return 0;
}

static int stdout_entry(struct sink *s, const Wb__FileEntry *e)
{
        if (s->opened || e->type != WB__FILE_TYPE__REGULAR || e->size > INT64_MAX) {
                copy_say("stdout", "only a file's bytes can go there (with -r: a tar of anything)");
                return EXIT_FAILED;
        }
        s->opened = true;
        s->size = e->size;
        s->open_ended = e->open_ended;
        return 0;
}

static int stdout_data(struct sink *s, uint64_t offset, const uint8_t *data, size_t n)
{
        int r;

        if (!s->opened || offset < s->position || (!s->open_ended && (offset > s->size || n > s->size - offset))) {
                copy_say("stdout", "the guest sends data out of order");
                return EXIT_FAILED;
        }
        r = write_zeros(s, offset);
        if (r != 0)
                return r;
        r = io_write_full(STDOUT_FILENO, data, n);
        s->position += n;
        return r < 0 ? copy_say_errno("stdout", r) : 0;
}

/* ---- any of them; 0 or EXIT_FAILED, said */

static int said_of_writer(const struct sink *s, int r)
{
        if (r == 0)
                return 0;
        if (r == TREE_E_REFUSED) {
                copy_say("refused what the guest sent", tree_writer_fault(s->writer));
                return EXIT_FAILED;
        }
        return copy_say_errno(tree_writer_fault(s->writer), r);
}

static int sink_entry(struct sink *s, const Wb__FileEntry *e)
{
        if (s->writer)
                return said_of_writer(s, tree_writer_entry(s->writer, e));
        if (s->tar)
                return copy_tar_entry(s->tar, e) < 0 ? EXIT_FAILED : 0;
        return stdout_entry(s, e);
}

static int sink_data(struct sink *s, const Wb__FileData *d)
{
        if (s->writer)
                return said_of_writer(s, tree_writer_data(s->writer, d->offset, d->data.data, d->data.len));
        if (s->tar)
                return copy_tar_data(s->tar, d->offset, d->data.data, d->data.len) < 0 ? EXIT_FAILED : 0;
        return stdout_data(s, d->offset, d->data.data, d->data.len);
}

static int sink_end(struct sink *s, const Wb__FileDone *done)
{
        struct tree_writer_report report = {0};
        int r = 0;

        if (s->writer)
                r = said_of_writer(s, tree_writer_end(s->writer, &report));
        else if (s->tar)
                r = copy_tar_end(s->tar) < 0 ? EXIT_FAILED : 0;
        else if (!s->open_ended)
                r = write_zeros(s, s->size);
        if (r == 0 && (done->skipped || report.skipped))
                fprintf(stderr, "wbctl: %" PRIu64 " sockets or devices were left out\n",
                        done->skipped + report.skipped);
        return r;
}

/* ---- where that is */

static mode_t current_umask(void)
{
        mode_t mask = umask(0);

        (void)umask(mask);
        return mask;
}

static int open_writer(const struct copy *c, bool has_name, struct sink *s)
{
        struct tree_writer_options options = {
                .keep_owner = c->options->preserve,
                .uid = (uid_t)-1,
                .gid = (gid_t)-1,
                .special = c->options->special,
                .mask = c->options->preserve ? 0 : current_umask(),
                .synchronize = true,
        };
        int r = tree_writer_new(s->dir, has_name ? s->name : NULL, &options, &s->writer);

        return r < 0 ? copy_say_errno(c->local, r) : 0;
}

/* As cp(1): into a folder that is there, else as the name that was given. What the user names may be a symbolic link;
 * nothing that the guest names is followed. */
static int open_local(const struct copy *c, struct sink *s)
{
        char parent[TREE_PATH_MAX + 1], *slash;
        size_t n = strlen(c->local);

        s->dir = open(c->local, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (s->dir >= 0)
                return open_writer(c, copy_base_name(c->guest, s->name), s);
        if ((errno != ENOENT && errno != ENOTDIR) || n > TREE_PATH_MAX)
                return copy_say_errno(c->local, n > TREE_PATH_MAX ? -ENAMETOOLONG : -errno);
        if (!copy_base_name(c->local, s->name) || (c->local[n - 1] == '/' && !c->options->recursive))
                return copy_say_errno(c->local, -ENOTDIR);
        memcpy(parent, c->local, n + 1);
        while (parent[n - 1] == '/')
                parent[--n] = '\0';
        slash = strrchr(parent, '/');
        if (slash)
                slash[slash == parent ? 1 : 0] = '\0';
        s->dir = open(slash ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return s->dir < 0 ? copy_say_errno(c->local, -errno) : open_writer(c, true, s);
}

static int open_sink(const struct copy *c, struct sink *s)
{
        char prefix[TREE_NAME_MAX + 1] = "";

        if (strcmp(c->local, "-") != 0)
                return open_local(c, s);
        if (!c->options->recursive) {
                s->to_stdout = true;
                return 0;
        }
        (void)copy_base_name(c->guest, prefix);
        return copy_tar_new(prefix, &s->tar) < 0 ? EXIT_FAILED : 0;
}

/* ---- the conversation */

static int ask(struct copy *c)
{
        const struct copy_options *o = c->options;
        Wb__FilePlace place = WB__FILE_PLACE__INIT;
        Wb__FileGet get = WB__FILE_GET__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        int r;

        place.path = (ProtobufCBinaryData){.len = strlen(c->guest), .data = (uint8_t *)(uintptr_t)c->guest};
        if (o->root)
                place.root = (ProtobufCBinaryData){.len = strlen(o->root), .data = (uint8_t *)(uintptr_t)o->root};
        get.place = &place;
        get.recursive = o->recursive;
        get.special = o->special;
        get.one_filesystem = o->one_filesystem;
        m.body_case = WB__TO_AGENT__BODY_FILE_GET;
        m.file_get = &get;
        c->call.deadline_ns = clock_monotonic_ns() + c->answer_ms * NSEC_PER_MSEC;
        r = client_call_send(&c->call, &m);
        return r < 0 && r != -EPIPE ? agent_call_failed(r, NULL) : 0;
}

static int take(struct copy *c, struct sink *s, const Wb__FromAgent *m, bool *ret_ended)
{
        *ret_ended = false;
        switch ((int)m->body_case) {
        case WB__FROM_AGENT__BODY_FILE_ENTRY:
                copy_progress_file(&c->progress, m->file_entry->size);
                return sink_entry(s, m->file_entry);
        case WB__FROM_AGENT__BODY_FILE_DATA:
                copy_progress_move(&c->progress, m->file_data->offset, m->file_data->data.len);
                return sink_data(s, m->file_data);
        case WB__FROM_AGENT__BODY_FILE_DONE: *ret_ended = true; return sink_end(s, m->file_done);
        default: copy_progress_end(&c->progress); return agent_call_failed(0, m);
        }
}

static int receive_all(struct copy *c, struct sink *s)
{
        bool ended = false;
        int r = 0;

        while (r == 0 && !ended) {
                Wb__FromAgent *m;

                r = client_call_receive(&c->call, &m);
                if (r < 0)
                        return agent_call_failed(r, NULL);
                c->call.deadline_ns = UINT64_MAX;
                r = take(c, s, m, &ended);
                codec_free_from_agent(m);
        }
        return r;
}

int copy_get(struct copy *c)
{
        struct sink s = {.dir = -1};
        int r = open_sink(c, &s);

        if (r == 0)
                r = ask(c);
        if (r == 0)
                r = receive_all(c, &s);
        copy_progress_end(&c->progress);
        sink_done(&s);
        return r;
}
