/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "guest/filesystems.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"

#define FD_CONVERSATION 3
#define FD_OPENING      4

static int receive_opening(Wb__ToAgent **ret)
{
        struct frame_reader reader = {0};
        _cleanup_free_ char *text = NULL;
        const uint8_t *p, *payload;
        size_t n, payload_n;
        int r = io_read_fd(FD_OPENING, WB_FRAME_MAX_BYTES, &text, &n);

        (void)close(FD_OPENING);
        if (r < 0)
                return r;
        p = (const uint8_t *)text;
        r = frame_read(&reader, &p, &n, &payload, &payload_n);
        if (r == 0)
                r = codec_unpack_to_agent(payload, payload_n, ret);
        frame_reader_done(&reader);
        return r > 0 ? -EBADMSG : r;
}

/* The path that an errno alone is about. */
static const Wb__FilePlace *place_of(const Wb__ToAgent *m)
{
        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_FILE_STAT: return m->file_stat->place;
        case WB__TO_AGENT__BODY_FILE_LIST: return m->file_list->place;
        case WB__TO_AGENT__BODY_FILE_MKDIR: return m->file_mkdir->place;
        case WB__TO_AGENT__BODY_FILE_REMOVE: return m->file_remove->place;
        case WB__TO_AGENT__BODY_FILE_RENAME: return m->file_rename->from;
        case WB__TO_AGENT__BODY_FILE_GET: return m->file_get->place;
        case WB__TO_AGENT__BODY_FILE_PUT: return m->file_put->place;
        case WB__TO_AGENT__BODY_FILE_WATCH: return m->file_watch->place;
        default: return NULL;
        }
}

static int synchronize(struct talk *t, const Wb__Sync *m)
{
        uint64_t trimmed_bytes = 0;

        sync();
        if (m->trim)
                trimmed_bytes = filesystems_trim();
        return talk_send_done(t, 0, trimmed_bytes, 0);
}

static int run(struct talk *t, const Wb__ToAgent *m)
{
        switch ((int)m->body_case) {
        case WB__TO_AGENT__BODY_FILE_STAT: return files_stat(t, m->file_stat);
        case WB__TO_AGENT__BODY_FILE_LIST: return files_list(t, m->file_list);
        case WB__TO_AGENT__BODY_FILE_MKDIR: return files_mkdir(t, m->file_mkdir);
        case WB__TO_AGENT__BODY_FILE_REMOVE: return files_remove(t, m->file_remove);
        case WB__TO_AGENT__BODY_FILE_RENAME: return files_rename(t, m->file_rename);
        case WB__TO_AGENT__BODY_FILE_GET: return files_get(t, m->file_get);
        case WB__TO_AGENT__BODY_FILE_PUT: return files_put(t, m->file_put);
        case WB__TO_AGENT__BODY_FILE_WATCH: return files_watch(t, m->file_watch);
        case WB__TO_AGENT__BODY_SYNC: return synchronize(t, m->sync);
        default: return -EBADMSG;
        }
}

static void converse(struct talk *t, const Wb__ToAgent *m)
{
        const Wb__FilePlace *place = place_of(m);
        int r = run(t, m);

        if (r < 0)
                (void)talk_fail_errno(t, r, place ? (const char *)place->path.data : "", place ? place->path.len : 0);
}

int files_main(void)
{
        _cleanup_free_ struct talk *t = calloc(1, sizeof(*t));
        Wb__ToAgent *m;
        int flags = fcntl(FD_CONVERSATION, F_GETFL), r;

        log_setup("wbagent-files", LOG_LEVEL_INFO);
        (void)prctl(PR_SET_NAME, "wbagent-files");
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        (void)signal(SIGPIPE, SIG_IGN);
        (void)umask(0); /* modes are as they are asked for */
        if (!t || flags < 0)
                return EXIT_FAILURE;
        t->fd = FD_CONVERSATION;
        (void)fcntl(t->fd, F_SETFD, FD_CLOEXEC);
        (void)fcntl(t->fd, F_SETFL, flags & ~O_NONBLOCK); /* nobody else has it any more */
        r = receive_opening(&m);
        if (r < 0)
                return EXIT_FAILURE;
        r = files_enter_sandbox(m);
        if (r < 0)
                (void)talk_fail_errno(t, r, "giving up privileges", strlen("giving up privileges"));
        else
                converse(t, m);
        codec_free_to_agent(m);
        frame_reader_done(&t->reader);
        return EXIT_SUCCESS;
}
