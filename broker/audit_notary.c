/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_notary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>

#include "broker/audit_key.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"

#define HEAD_NAME      "audit.head"
#define HEAD_MAX_BYTES 128u
#define LOCK_TRIES     20
#define LOCK_PAUSE_NS  50000000

struct audit_notary {
        int sock;
        int dir_fd; /* locked for as long as it is open */
        struct p256_key *key;
        uint64_t seq; /* of the last record that was vouched for; 0: none yet */
        struct audit_hash hash;
};

int audit_notary_pair(int ret_fds[2])
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret_fds) < 0 ? -errno : 0;
}

static int parse_head(char *text, struct audit_notary *n)
{
        char *space = strchr(text, ' '), *end = strchr(text, '\n');

        if (!space || !end || end < space || end[1] != '\0')
                return -EBADMSG;
        *space = '\0';
        if (parse_u64(text, UINT64_MAX, &n->seq) < 0)
                return -EBADMSG;
        return audit_hash_parse(space + 1, (size_t)(end - space - 1), &n->hash);
}

/* What cannot be read is not taken for a beginning: that would let a cut log pass. */
static int load_head(struct audit_notary *n)
{
        _cleanup_close_ int fd = openat(n->dir_fd, HEAD_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        _cleanup_free_ char *text = NULL;
        int r;

        if (fd < 0 && errno == ENOENT)
                return 0;
        r = fd < 0 ? -errno : io_read_fd(fd, HEAD_MAX_BYTES, &text, NULL);
        if (r == 0)
                r = parse_head(text, n);
        return r < 0 ? log_errno(r, "state_dir's " HEAD_NAME ", which says up to where the audit log was signed") : 0;
}

static int save_head(struct audit_notary *n, uint64_t seq, const struct audit_hash *hash)
{
        char digits[SHA256_TEXT_BYTES], text[HEAD_MAX_BYTES];
        int r;

        sha256_text(hash->bytes, digits);
        (void)snprintf(text, sizeof(text), "%" PRIu64 " %s\n", seq, digits);
        r = audit_state_write(n->dir_fd, HEAD_NAME, 0644, text);
        if (r < 0)
                return log_errno(r, "cannot write state_dir's " HEAD_NAME "; the audit log is not signed");
        n->seq = seq;
        n->hash = *hash;
        return 0;
}

/*
 * Two that remember in the same place would each call the other's log a forgery. A monitor that was just killed may
 * have left a child that looks at a process and is about to end; until then it holds the lock, too.
 */
static int lock_state(int dir_fd, const char *state_dir)
{
        const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

        for (int tries = 0; flock(dir_fd, LOCK_EX | LOCK_NB) < 0; tries++) {
                if (errno != EWOULDBLOCK)
                        return log_errno(-errno, "cannot lock %s", state_dir);
                if (tries == LOCK_TRIES) {
                        log_error("another broker has the state_dir %s; give each one of its own", state_dir);
                        return -EBUSY;
                }
                (void)nanosleep(&pause, NULL);
        }
        return 0;
}

int audit_notary_new(const char *state_dir, int sock, struct audit_notary **ret)
{
        struct audit_notary *n = calloc(1, sizeof(*n));
        int r;

        if (!n) {
                close_fd(sock);
                return log_oom();
        }
        n->sock = sock;
        n->dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = n->dir_fd < 0 ? log_errno(-errno, "cannot open %s", state_dir) : lock_state(n->dir_fd, state_dir);
        if (r == 0)
                r = audit_key_open(n->dir_fd, &n->key);
        if (r == 0)
                r = load_head(n);
        if (r < 0) {
                audit_notary_free(n);
                return r;
        }
        *ret = n;
        return 0;
}

void audit_notary_free(struct audit_notary *n)
{
        if (!n)
                return;
        p256_free(n->key);
        close_fd(n->dir_fd);
        close_fd(n->sock);
        free(n);
}

int audit_notary_fd(const struct audit_notary *n)
{
        return n ? n->sock : -1;
}

static int vouch(struct audit_notary *n, const struct audit_question *q, struct audit_checkpoint *ret)
{
        int r;

        if (q->seq == 0)
                return -EINVAL;
        ret->seq = q->seq;
        clock_format(clock_realtime_ns(), ret->ts);
        ret->previous = q->previous;
        ret->after = n->seq;
        ret->after_hash = n->hash;
        r = audit_checkpoint_sign(ret, n->key);
        /* Remembered before it is told: nobody has a signature that the next will not name. */
        return r == 0 ? save_head(n, q->seq - 1, &q->previous) : r;
}

void audit_notary_serve(struct audit_notary *n)
{
        struct audit_question question;
        struct audit_answer answer = {0};
        ssize_t got = recv(n->sock, &question, sizeof(question), MSG_TRUNC);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (got <= 0) {
                n->sock = close_fd(n->sock);
                return;
        }
        answer.result = (size_t)got == sizeof(question) ? vouch(n, &question, &answer.checkpoint) : -EBADMSG;
        /* Who does not read its answers goes without. */
        (void)send(n->sock, &answer, sizeof(answer), MSG_NOSIGNAL);
}

/* 0 with an answer, or a negative errno; is_waiting is what remains open. */
static int receive(struct audit_asker *a, uint64_t end_ns, struct audit_answer *ret)
{
        for (;;) {
                struct pollfd p = {.fd = a->sock, .events = POLLIN};
                uint64_t now_ns = clock_monotonic_ns();
                int n = poll(&p, 1, now_ns < end_ns ? (int)((end_ns - now_ns) / NSEC_PER_MSEC) + 1 : 0);
                ssize_t got;

                if (n == 0 && clock_monotonic_ns() >= end_ns)
                        return -ETIMEDOUT;
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n <= 0)
                        continue;
                got = recv(a->sock, ret, sizeof(*ret), MSG_TRUNC);
                if (got < 0 && (errno == EINTR || errno == EAGAIN))
                        continue;
                a->is_waiting = false;
                return got == 0 ? -EPIPE : got < 0 ? -errno : (size_t)got != sizeof(*ret) ? -EBADMSG : 0;
        }
}

int audit_notary_ask(
        struct audit_asker *a, const struct audit_question *question, uint64_t timeout_ns, struct audit_checkpoint *ret)
{
        uint64_t end_ns = clock_monotonic_ns() + timeout_ns;
        struct audit_answer answer;
        int r;

        if (a->is_waiting && receive(a, end_ns, &answer) < 0)
                return AUDIT_NOTARY_E_NOT_ASKED;
        if (send(a->sock, question, sizeof(*question), MSG_NOSIGNAL) < 0)
                return AUDIT_NOTARY_E_NOT_ASKED;
        a->is_waiting = true;
        r = receive(a, end_ns, &answer);
        if (r == 0)
                r = answer.result;
        if (r == 0 &&
                (answer.checkpoint.seq != question->seq ||
                        memcmp(&answer.checkpoint.previous, &question->previous, sizeof(question->previous)) != 0))
                r = -EBADMSG;
        if (r == 0)
                *ret = answer.checkpoint;
        return r;
}
