/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/tree/reader.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/copy.h"
#include "tools/wbctl/printable.h"

bool copy_base_name(const char *path, char ret[TREE_NAME_MAX + 1])
{
        size_t n = strlen(path), start;

        while (n && path[n - 1] == '/')
                n--;
        for (start = n; start && path[start - 1] != '/'; start--)
                ;
        if (!tree_name_is_good(path + start, n - start))
                return false;
        memcpy(ret, path + start, n - start);
        ret[n - start] = '\0';
        return true;
}

void copy_say(const char *path, const char *text)
{
        char shown[512];

        printable(path, shown, sizeof(shown));
        fprintf(stderr, "wbctl: %s: %s\n", shown, text);
}

int copy_say_errno(const char *path, int error)
{
        const char *text = strerrordesc_np(-error);

        copy_say(path, text ? text : "it failed");
        return EXIT_FAILED;
}

/* ---- the stream */

/* While we send the guest has nothing to say but that it failed. */
static bool guest_has_spoken(const struct copy *c)
{
        uint8_t byte;
        ssize_t got = recv(c->call.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

        return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

static int send_message(struct copy *c, const Wb__ToAgent *m)
{
        int r;

        if (guest_has_spoken(c))
                return -ECANCELED;
        r = client_call_send(&c->call, m);
        return r == -EPIPE || r == -ECONNRESET ? -ECANCELED : r;
}

int copy_send_entry(struct copy *c, const Wb__FileEntry *e)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        copy_progress_file(&c->progress, e->size);
        m.body_case = WB__TO_AGENT__BODY_FILE_ENTRY;
        m.file_entry = (Wb__FileEntry *)(uintptr_t)e;
        return send_message(c, &m);
}

int copy_send_data(struct copy *c, uint64_t offset, const uint8_t *data, size_t n)
{
        Wb__FileData file_data = WB__FILE_DATA__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        file_data.offset = offset;
        file_data.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)data};
        m.body_case = WB__TO_AGENT__BODY_FILE_DATA;
        m.file_data = &file_data;
        copy_progress_move(&c->progress, offset, n);
        return send_message(c, &m);
}

static int on_entry(void *userdata, const Wb__FileEntry *e)
{
        return copy_send_entry(userdata, e);
}

static int on_data(void *userdata, uint64_t offset, const uint8_t *data, size_t n)
{
        return copy_send_data(userdata, offset, data, n);
}

/* ---- where it comes from; each 0, -ECANCELED, or another negative errno, said */

static int send_tree(struct copy *c, int fd)
{
        static const struct tree_reader_handler handler = {.entry = on_entry, .data = on_data};
        struct tree_reader_options options = {.recursive = c->options->recursive,
                .special = c->options->special,
                .one_filesystem = c->options->one_filesystem};
        struct tree_reader_report report;
        int r = tree_read(fd, &options, &handler, c, &report);

        if (r == 0 || r == -ECANCELED)
                return r;
        if (r == -EISDIR && !report.fault[0])
                copy_say(c->local, "a folder: copy it with -r");
        else
                (void)copy_say_errno(report.fault[0] ? report.fault : c->local, r);
        return r;
}

static int send_stdin(struct copy *c)
{
        _cleanup_free_ uint8_t *buffer = malloc(WB_CHUNK_MAX_BYTES);
        Wb__FileEntry e = WB__FILE_ENTRY__INIT;
        uint64_t now_ns = clock_realtime_ns(), at = 0;
        int r;

        e.mode = 0644;
        e.open_ended = true;
        e.mtime_s = (int64_t)(now_ns / NSEC_PER_SEC);
        e.mtime_ns = (uint32_t)(now_ns % NSEC_PER_SEC);
        r = buffer ? copy_send_entry(c, &e) : -ENOMEM;
        while (r == 0) {
                ssize_t got = read(STDIN_FILENO, buffer, WB_CHUNK_MAX_BYTES);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got == 0)
                        return 0;
                r = got < 0 ? -errno : copy_send_data(c, at, buffer, (size_t)got);
                at += got > 0 ? (uint64_t)got : 0;
        }
        if (r != -ECANCELED)
                (void)copy_say_errno("stdin", r);
        return r;
}

static int send_source(struct copy *c, int fd)
{
        if (fd >= 0)
                return send_tree(c, fd);
        return c->options->recursive ? copy_tar_send(c) : send_stdin(c);
}

/* ---- the conversation */

/* The guest's next word: 0 if it is the wanted one, else EXIT_FAILED, said. */
static int hear(struct copy *c, Wb__FromAgent__BodyCase wanted, Wb__FromAgent **ret)
{
        Wb__FromAgent *m = NULL;
        int r = client_call_receive(&c->call, &m);

        copy_progress_end(&c->progress);
        if (r == 0 && m->body_case == wanted) {
                *ret = m;
                return 0;
        }
        r = agent_call_failed(r, m);
        codec_free_from_agent(m);
        return r;
}

static int open_conversation(struct copy *c)
{
        struct copy_options const *o = c->options;
        Wb__FilePlace place = WB__FILE_PLACE__INIT;
        Wb__FilePut put = WB__FILE_PUT__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        char name[TREE_NAME_MAX + 1] = "";
        bool from_stdin = strcmp(c->local, "-") == 0;
        Wb__FromAgent *ready;
        int r;

        place.path = (ProtobufCBinaryData){.len = strlen(c->guest), .data = (uint8_t *)(uintptr_t)c->guest};
        if (o->root)
                place.root = (ProtobufCBinaryData){.len = strlen(o->root), .data = (uint8_t *)(uintptr_t)o->root};
        put.place = &place;
        put.contents = from_stdin ? o->recursive : !copy_base_name(c->local, name);
        if (!from_stdin)
                put.name = (ProtobufCBinaryData){.len = strlen(name), .data = (uint8_t *)name};
        put.owner = (char *)(uintptr_t)(o->owner ? o->owner : "");
        put.keep_owner = o->preserve;
        put.special = o->special;
        m.body_case = WB__TO_AGENT__BODY_FILE_PUT;
        m.file_put = &put;
        c->call.deadline_ns = clock_monotonic_ns() + c->answer_ms * NSEC_PER_MSEC;
        r = client_call_send(&c->call, &m);
        if (r < 0 && r != -EPIPE)
                return agent_call_failed(r, NULL);
        r = hear(c, WB__FROM_AGENT__BODY_FILE_READY, &ready);
        if (r != 0)
                return r;
        codec_free_from_agent(ready);
        c->call.deadline_ns = UINT64_MAX; /* a disk may be slow */
        return 0;
}

static int finish(struct copy *c)
{
        Wb__FileEnd end = WB__FILE_END__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__FromAgent *done;
        int r;

        m.body_case = WB__TO_AGENT__BODY_FILE_END;
        m.file_end = &end;
        (void)send_message(c, &m); /* if it failed the answer says why */
        r = hear(c, WB__FROM_AGENT__BODY_FILE_DONE, &done);
        if (r != 0)
                return r;
        if (done->file_done->skipped)
                fprintf(stderr, "wbctl: %" PRIu64 " sockets or devices were left out\n", done->file_done->skipped);
        codec_free_from_agent(done);
        return 0;
}

/* A file that is a device or a FIFO is not opened: it may wait, or act. */
static int open_source(const struct copy *c, int *ret_fd)
{
        struct stat st;
        int fd = -1;

        if (strcmp(c->local, "-") == 0) {
                *ret_fd = -1;
                return 0;
        }
        if (stat(c->local, &st) < 0)
                return copy_say_errno(c->local, -errno);
        fd = open(c->local,
                O_CLOEXEC | O_NOCTTY | (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? O_RDONLY | O_NONBLOCK : O_PATH));
        if (fd < 0)
                return copy_say_errno(c->local, -errno);
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !c->options->special) {
                (void)close(fd);
                copy_say(c->local, "neither a file nor a folder (-: stdin; --special: as it is)");
                return EXIT_FAILED;
        }
        if (S_ISDIR(st.st_mode) && !c->options->recursive) {
                (void)close(fd);
                copy_say(c->local, "a folder: copy it with -r");
                return EXIT_FAILED;
        }
        *ret_fd = fd;
        return 0;
}

int copy_put(struct copy *c)
{
        _cleanup_close_ int fd = -1;
        int r = open_source(c, &fd);

        if (r == 0)
                r = open_conversation(c);
        if (r != 0)
                return r;
        r = send_source(c, fd);
        if (r == 0 || r == -ECANCELED)
                return finish(c);
        return EXIT_FAILED; /* closing the conversation in the middle leaves nothing of the file over there */
}
