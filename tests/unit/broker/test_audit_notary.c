/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_notary.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/audit.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "tests/support/suite.h"

static char state[64], logs[64];

static char *path_of(const char *dir, const char *name)
{
        static char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

static void empty(const char *dir)
{
        DIR *d = opendir(dir);

        for (struct dirent *e = readdir(d); e; e = readdir(d))
                (void)unlink(path_of(dir, e->d_name));
        (void)closedir(d);
}

/* ---- the notary alone */

struct pair {
        struct audit_notary *notary;
        struct audit_asker asker;
};

static struct pair open_pair(void)
{
        struct pair p = {0};
        int fds[2];

        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL_FATAL(audit_notary_new(state, fds[0], &p.notary), 0);
        p.asker.sock = fds[1];
        return p;
}

static void pair_done(struct pair *p)
{
        audit_notary_free(p->notary);
        close_fd(p->asker.sock);
}

static void *serve_one(void *userdata)
{
        struct audit_notary *n = userdata;
        struct pollfd p = {.fd = audit_notary_fd(n), .events = POLLIN};

        (void)poll(&p, 1, -1);
        audit_notary_serve(n);
        return NULL;
}

static int ask(struct pair *p, uint64_t seq, uint8_t mark, struct audit_checkpoint *ret)
{
        struct audit_question q = {.seq = seq, .previous.bytes = {mark}};
        pthread_t thread;
        int r;

        pthread_create(&thread, NULL, serve_one, p->notary);
        r = audit_notary_ask(&p->asker, &q, 20 * NSEC_PER_SEC, ret);
        pthread_join(thread, NULL);
        return r;
}

static void test_signs_and_remembers(void)
{
        struct pair p = open_pair();
        struct audit_checkpoint c;
        uint8_t id[SHA256_BYTES];

        CU_ASSERT_EQUAL_FATAL(ask(&p, 3, 7, &c), 0);
        CU_ASSERT_EQUAL(c.seq, 3);
        CU_ASSERT_EQUAL(c.previous.bytes[0], 7);
        CU_ASSERT_EQUAL(c.after, 0);
        CU_ASSERT_EQUAL(audit_checkpoint_check(&c, id), 0);
        c.seq = 4;
        CU_ASSERT_EQUAL(audit_checkpoint_check(&c, id), -EKEYREJECTED);
        audit_notary_free(p.notary);
        close_fd(p.asker.sock);

        /* Also when it starts again: the one before is named, and the key is the same. */
        p = open_pair();
        CU_ASSERT_EQUAL_FATAL(ask(&p, 9, 8, &c), 0);
        CU_ASSERT_EQUAL(c.after, 2);
        CU_ASSERT_EQUAL(c.after_hash.bytes[0], 7);
        CU_ASSERT_EQUAL(audit_checkpoint_check(&c, id), 0);

        /* What is asked backwards is signed, and the signature says so. */
        CU_ASSERT_EQUAL_FATAL(ask(&p, 2, 1, &c), 0);
        CU_ASSERT_EQUAL(c.after, 8);
        pair_done(&p);
        empty(state);
}

static void test_one_at_a_time(void)
{
        struct pair p = open_pair();
        struct audit_notary *n = NULL;
        int fds[2];

        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL(audit_notary_new(state, fds[0], &n), -EBUSY);
        CU_ASSERT_PTR_NULL(n);
        close_fd(fds[1]);
        pair_done(&p);
        p = open_pair();
        pair_done(&p);
        empty(state);
}

static void test_files(void)
{
        struct pair p = open_pair();
        char *first = NULL, *text = NULL;
        struct audit_notary *n;
        struct stat st;
        int fds[2];

        CU_ASSERT_EQUAL(stat(path_of(state, "audit.key"), &st), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0600);
        CU_ASSERT_EQUAL(stat(path_of(state, "audit.pub"), &st), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0644);
        pair_done(&p);

        /* The public part is written anew, the key never. */
        CU_ASSERT_EQUAL(io_read_file(path_of(state, "audit.pub"), 4096, &first, NULL), 0);
        CU_ASSERT_EQUAL(unlink(path_of(state, "audit.pub")), 0);
        p = open_pair();
        pair_done(&p);
        CU_ASSERT_EQUAL(io_read_file(path_of(state, "audit.pub"), 4096, &text, NULL), 0);
        CU_ASSERT_STRING_EQUAL(text, first);
        free(text);
        free(first);

        CU_ASSERT_EQUAL(chmod(path_of(state, "audit.key"), 0640), 0);
        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL(audit_notary_new(state, fds[0], &n), -EPERM);
        close_fd(fds[1]);
        CU_ASSERT_EQUAL(chmod(path_of(state, "audit.key"), 0600), 0);
        CU_ASSERT_EQUAL(truncate(path_of(state, "audit.key"), 100), 0);
        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL(audit_notary_new(state, fds[0], &n), -EBADMSG);
        close_fd(fds[1]);
        empty(state);
}

/* What cannot be read is no beginning. */
static void test_a_broken_head_is_refused(void)
{
        static const char *const bad[] = {"", "3", "3 \n", "x 00\n",
                "-1 0000000000000000000000000000000000000000000000000000000000000000\n",
                "3 0000000000000000000000000000000000000000000000000000000000000000",
                "3 0000000000000000000000000000000000000000000000000000000000000000\nx"};

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                FILE *f = fopen(path_of(state, "audit.head"), "w");
                struct audit_notary *n;
                int fds[2];

                CU_ASSERT_TRUE(fputs(bad[i], f) >= 0);
                (void)fclose(f);
                CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
                CU_ASSERT_EQUAL(audit_notary_new(state, fds[0], &n), -EBADMSG);
                close_fd(fds[1]);
        }
        empty(state);
}

static void test_nonsense_is_answered(void)
{
        struct pair p = open_pair();
        struct audit_answer answer;
        struct audit_checkpoint c;
        char big[4096] = {0};

        CU_ASSERT_EQUAL(send(p.asker.sock, "x", 1, 0), 1);
        audit_notary_serve(p.notary);
        CU_ASSERT_EQUAL(recv(p.asker.sock, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
        CU_ASSERT_EQUAL(answer.result, -EBADMSG);
        CU_ASSERT_EQUAL(send(p.asker.sock, big, sizeof(big), 0), (ssize_t)sizeof(big));
        audit_notary_serve(p.notary);
        CU_ASSERT_EQUAL(recv(p.asker.sock, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
        CU_ASSERT_EQUAL(answer.result, -EBADMSG);
        CU_ASSERT_EQUAL(ask(&p, 0, 1, &c), -EINVAL);
        /* Who never reads its answers is let be. */
        for (int i = 0; i < 2000; i++)
                if (send(p.asker.sock, "x", 1, MSG_DONTWAIT) == 1)
                        audit_notary_serve(p.notary);
        shutdown(p.asker.sock, SHUT_RDWR);
        for (int i = 0; i < 1000 && audit_notary_fd(p.notary) >= 0; i++)
                audit_notary_serve(p.notary);
        CU_ASSERT_EQUAL(audit_notary_fd(p.notary), -1);
        CU_ASSERT_EQUAL(audit_notary_fd(NULL), -1);
        pair_done(&p);
        empty(state);
}

static void test_late_answers_are_not_taken(void)
{
        struct pair p = open_pair();
        struct audit_question q = {.seq = 5, .previous.bytes = {5}};
        struct audit_checkpoint c;

        CU_ASSERT_EQUAL(audit_notary_ask(&p.asker, &q, NSEC_PER_MSEC, &c), -ETIMEDOUT);
        CU_ASSERT_TRUE(p.asker.is_waiting);
        q.seq = 9;
        CU_ASSERT_EQUAL(audit_notary_ask(&p.asker, &q, NSEC_PER_MSEC, &c), AUDIT_NOTARY_E_NOT_ASKED);
        audit_notary_serve(p.notary);
        CU_ASSERT_EQUAL_FATAL(ask(&p, 6, 6, &c), 0);
        CU_ASSERT_EQUAL(c.seq, 6);
        CU_ASSERT_EQUAL(c.after, 4); /* the late one was signed; the one at 9 was not asked */
        CU_ASSERT_FALSE(p.asker.is_waiting);
        audit_notary_free(p.notary);
        CU_ASSERT_EQUAL(audit_notary_ask(&p.asker, &q, NSEC_PER_SEC, &c), AUDIT_NOTARY_E_NOT_ASKED);
        close_fd(p.asker.sock);
        empty(state);
}

/* ---- with the log */

struct service {
        struct audit_notary *notary;
        pthread_t thread;
};

static void *serve(void *userdata)
{
        struct service *s = userdata;

        while (audit_notary_fd(s->notary) >= 0) {
                struct pollfd p = {.fd = audit_notary_fd(s->notary), .events = POLLIN};

                (void)poll(&p, 1, -1);
                audit_notary_serve(s->notary);
        }
        return NULL;
}

static struct audit *open_log(struct service *s, uint64_t rotate_bytes)
{
        struct audit_options o = {.dir = logs, .rotate_bytes = rotate_bytes, .sync = AUDIT_SYNC_BATCH};
        struct audit *a = NULL;
        int fds[2];

        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL_FATAL(audit_notary_new(state, fds[0], &s->notary), 0);
        pthread_create(&s->thread, NULL, serve, s);
        o.notary_fd = fds[1];
        CU_ASSERT_EQUAL_FATAL(audit_new(&o, &a), 0);
        return a;
}

static void close_log(struct service *s, struct audit *a)
{
        audit_free(a); /* its end of the socket goes with it, so the thread ends */
        pthread_join(s->thread, NULL);
        audit_notary_free(s->notary);
}

static void submit(struct audit *a, enum audit_event event)
{
        struct audit_record record = AUDIT_RECORD_INIT(event);

        record.host = "a.example.org";
        while (audit_submit(a, &record, NULL, NULL) == -ENOBUFS)
                usleep(100);
}

/* The lines of a file: checks the chain from *hash on, and counts checkpoints. */
static size_t read_file(
        const char *name, struct audit_hash *hash, uint64_t *seq, size_t *checkpoints, bool *first_is_one)
{
        char *text = NULL, *rest;
        size_t lines = 0;

        CU_ASSERT_EQUAL_FATAL(io_read_file(path_of(logs, name), 64 << 20, &text, NULL), 0);
        rest = text;
        for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"), lines++) {
                struct audit_hash own, want;
                uint64_t at = 0;
                size_t n = 0;

                CU_ASSERT_EQUAL_FATAL(audit_record_split(line, strlen(line), &n, &own), 0);
                CU_ASSERT_EQUAL(audit_record_hash(hash, line, n, &want), 0);
                CU_ASSERT_EQUAL(memcmp(&own, &want, sizeof(own)), 0);
                CU_ASSERT_EQUAL(audit_record_seq(line, strlen(line), &at), 0);
                CU_ASSERT_EQUAL(at, ++*seq);
                *hash = own;
                if (strstr(line, "\"event\":\"checkpoint\"")) {
                        ++*checkpoints;
                        *first_is_one = lines == 0 ? true : *first_is_one;
                } else if (lines == 0) {
                        *first_is_one = false;
                }
        }
        free(text);
        return lines;
}

static int is_rotated(const struct dirent *e)
{
        return strncmp(e->d_name, "audit.log.", 10) == 0;
}

static void test_checkpoints_at_start_stop_and_in_between(void)
{
        struct audit_hash hash = {{0}};
        uint64_t seq = 0;
        size_t checkpoints = 0;
        bool first = false;

        for (int i = 0; i < 2; i++) {
                struct service s;
                struct audit *a = open_log(&s, 64 << 20);

                submit(a, AUDIT_START);
                usleep(50000);
                for (unsigned j = 0; j < AUDIT_CHECKPOINT_RECORDS + 10; j++)
                        submit(a, AUDIT_EGRESS_DENY);
                usleep(200000);
                submit(a, AUDIT_STOP);
                close_log(&s, a);
        }
        (void)read_file("audit.log", &hash, &seq, &checkpoints, &first);
        CU_ASSERT_TRUE(checkpoints >= 6);
        empty(state);
        empty(logs);
}

static void test_every_rotated_file_begins_with_one(void)
{
        struct audit_hash hash = {{0}};
        struct dirent **names;
        uint64_t seq = 0;
        size_t checkpoints = 0;
        struct service s;
        struct audit *a = open_log(&s, 4096);
        bool first;
        int n;

        for (int i = 0; i < 100; i++)
                submit(a, AUDIT_EGRESS_DENY);
        close_log(&s, a);
        n = scandir(logs, &names, is_rotated, alphasort);
        CU_ASSERT_TRUE(n > 3);
        for (int i = 0; i < n; i++) {
                struct stat st;

                CU_ASSERT_EQUAL(stat(path_of(logs, names[i]->d_name), &st), 0);
                CU_ASSERT_TRUE(st.st_size <= 4096);
                (void)read_file(names[i]->d_name, &hash, &seq, &checkpoints, &first);
                CU_ASSERT_EQUAL(first, i > 0);
                free(names[i]);
        }
        free(names);
        (void)read_file("audit.log", &hash, &seq, &checkpoints, &first);
        CU_ASSERT_TRUE(first);
        CU_ASSERT_EQUAL(seq, 100 + checkpoints);
        empty(state);
        empty(logs);
}

/* Nobody signs: the log goes on. */
static void test_without_a_notary_the_log_goes_on(void)
{
        struct audit_hash hash = {{0}};
        struct audit_options o = {.dir = logs, .rotate_bytes = 4096, .sync = AUDIT_SYNC_EACH};
        struct audit *a = NULL;
        uint64_t seq = 0;
        size_t checkpoints = 0;
        bool first;
        int fds[2];

        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        close_fd(fds[0]);
        o.notary_fd = fds[1];
        CU_ASSERT_EQUAL_FATAL(audit_new(&o, &a), 0);
        for (int i = 0; i < 10; i++)
                submit(a, AUDIT_EGRESS_DENY);
        audit_free(a);
        CU_ASSERT_EQUAL(read_file("audit.log", &hash, &seq, &checkpoints, &first), 10);
        CU_ASSERT_EQUAL(checkpoints, 0);
        empty(logs);
}

static void wait_for_text(const char *name, const char *what)
{
        bool is = false;

        for (int i = 0; i < 500 && !is; i++) {
                _cleanup_free_ char *text = NULL;

                usleep(20000);
                is = io_read_file(path_of(logs, name), 64 << 20, &text, NULL) == 0 && strstr(text, what);
        }
        CU_ASSERT_TRUE(is);
}

/* The answer does not come in time: what was asked stands in the log. */
static void test_a_question_without_an_answer_is_written_down(void)
{
        struct audit_options o = {.dir = logs, .rotate_bytes = 1 << 20, .sync = AUDIT_SYNC_BATCH};
        struct audit_hash hash = {{0}};
        struct audit *a = NULL;
        struct service s;
        uint64_t seq = 0;
        size_t checkpoints = 0;
        bool first;
        int fds[2];

        CU_ASSERT_EQUAL_FATAL(audit_notary_pair(fds), 0);
        CU_ASSERT_EQUAL_FATAL(audit_notary_new(state, fds[0], &s.notary), 0);
        o.notary_fd = fds[1];
        CU_ASSERT_EQUAL_FATAL(audit_new(&o, &a), 0);
        submit(a, AUDIT_START);
        wait_for_text("audit.log", "\"event\":\"checkpoint\",\"previous\":");
        submit(a, AUDIT_STOP);
        pthread_create(&s.thread, NULL, serve, &s);
        close_log(&s, a);
        wait_for_text("audit.log", "\"after\":1,"); /* the late one was signed, and is named */
        CU_ASSERT_EQUAL(read_file("audit.log", &hash, &seq, &checkpoints, &first), 4);
        CU_ASSERT_EQUAL(checkpoints, 2);
        empty(state);
        empty(logs);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"signs and remembers", test_signs_and_remembers},
                {"files", test_files},
                {"one at a time", test_one_at_a_time},
                {"a broken head is refused", test_a_broken_head_is_refused},
                {"nonsense is answered", test_nonsense_is_answered},
                {"late answers are not taken", test_late_answers_are_not_taken},
                {"checkpoints at start, stop and in between", test_checkpoints_at_start_stop_and_in_between},
                {"every rotated file begins with one", test_every_rotated_file_begins_with_one},
                {"a question without an answer is written down", test_a_question_without_an_answer_is_written_down},
                {"without a notary the log goes on", test_without_a_notary_the_log_goes_on},
                CU_TEST_INFO_NULL,
        };
        int r;

        log_setup("test_audit_notary", LOG_LEVEL_ERROR);
        (void)snprintf(state, sizeof(state), "/tmp/wb-test-notary-XXXXXX");
        (void)snprintf(logs, sizeof(logs), "/tmp/wb-test-notary-log-XXXXXX");
        if (!mkdtemp(state) || !mkdtemp(logs))
                return 1;
        r = suite_run("audit_notary", tests);
        (void)rmdir(state);
        (void)rmdir(logs);
        return r;
}
