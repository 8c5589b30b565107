/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CUnit/Basic.h>
#include <jansson.h>

#include "broker/audit_file.h"
#include "broker/audit_record.h"
#include "broker/json_escape.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

static char dir[64];

static int make_dir(void)
{
        strcpy(dir, "/tmp/wb-test-audit-XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static char *path_of(const char *name)
{
        static char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

static void empty_dir(void)
{
        DIR *d = opendir(dir);

        for (struct dirent *e = readdir(d); e; e = readdir(d))
                (void)unlink(path_of(e->d_name));
        (void)closedir(d);
}

static int remove_dir(void)
{
        empty_dir();
        return rmdir(dir);
}

static struct audit *open_audit(enum audit_sync sync, uint64_t rotate_bytes)
{
        struct audit *a = NULL;

        CU_ASSERT_EQUAL_FATAL(audit_new(&(struct audit_options){.dir = dir,
                                                .rotate_bytes = rotate_bytes,
                                                .sync = sync,
                                                .required = true,
                                                .notary_fd = -1},
                                      &a),
                0);
        return a;
}

static void submit(struct audit *a, enum audit_event event, const char *vm)
{
        struct audit_record record = AUDIT_RECORD_INIT(event);

        record.vm = vm;
        CU_ASSERT_EQUAL(audit_submit(a, &record, NULL, NULL), 0);
}

/* Checks that a file's lines are records with seq from first on; answers how many. */
static uint64_t check_file(const char *name, uint64_t first)
{
        char *text = NULL, *rest;
        uint64_t n = 0;

        CU_ASSERT_EQUAL_FATAL(io_read_file(path_of(name), 64 << 20, &text, NULL), 0);
        rest = text;
        for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"), n++) {
                json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

                CU_ASSERT_PTR_NOT_NULL_FATAL(o);
                CU_ASSERT_EQUAL(json_integer_value(json_object_get(o, "seq")), (json_int_t)(first + n));
                json_decref(o);
        }
        free(text);
        return n;
}

static char *format(const struct audit_record *record)
{
        char *line = malloc(AUDIT_HEAD_MAX_BYTES + audit_record_room(record) + AUDIT_TAIL_BYTES + 1);
        struct audit_hash hash;
        size_t n = audit_record_head(7, UINT64_C(1700000000123456789), line);
        size_t body_n = audit_record_body(record, line + n);

        CU_ASSERT_TRUE(body_n <= audit_record_room(record));
        CU_ASSERT_EQUAL(audit_record_hash(&(struct audit_hash){{0}}, line, n + body_n, &hash), 0);
        audit_record_tail(&hash, line + n + body_n);
        line[n + body_n + AUDIT_TAIL_BYTES] = '\0';
        return line;
}

static void test_all_fields_in_order(void)
{
        uint8_t digest[32] = {0xab, [31] = 0x01};
        struct audit_record record = {
                .event = AUDIT_EGRESS_CLOSE,
                .vm = "v",
                .generation = 2,
                .session = 3,
                .has_decision = true,
                .reason = REASON_NO_RULE,
                .rule = 0,
                .has_via = true,
                .via = VIA_SOCKS5,
                .host = "h",
                .port = 443,
                .address = "203.0.114.7",
                .method = "GET",
                .path = "/",
                .status = 403,
                .has_bytes = true,
                .bytes_up = 0,
                .bytes_down = 5,
                .duration_ms = 0,
                .ech = true,
                .policy_sha256 = digest,
                .detail = "d",
        };
        char *line = format(&record);

        CU_ASSERT_STRING_EQUAL(line,
                "{\"seq\":7,\"ts\":\"2023-11-14T22:13:20.123456Z\",\"vm\":\"v\",\"gen\":2,\"session\":3,\"event\":\"egress_close\","
                "\"decision\":\"deny\",\"reason\":\"no_rule\",\"rule\":0,\"via\":\"socks5\",\"host\":\"h\",\"port\":443,"
                "\"addr\":\"203.0.114.7\",\"method\":\"GET\",\"path\":\"/\",\"status\":403,\"bytes_up\":0,\"bytes_down\":5,"
                "\"duration_ms\":0,\"ech\":true,\"policy\":\"ab000000000000000000000000000000000000000000000000000000000000"
                "01\",\"detail\":\"d\",\"hash\":\"01a289c2105e1932c6518c6271a4340e92b68a43c7e441f99d342fcc935677b0\"}\n");
        free(line);
}

static void test_absent_fields_are_left_out(void)
{
        char *line = format(&AUDIT_RECORD_INIT(AUDIT_START));

        CU_ASSERT_STRING_EQUAL(line,
                "{\"seq\":7,\"ts\":\"2023-11-14T22:13:20.123456Z\",\"event\":\"start\","
                "\"hash\":\"b242b2b43732590695efa47e63a8918a5e35f2c4ca366d1a4fc8369ab52ce086\"}\n");
        free(line);
}

static void check_escaped(const char *text, const char *want)
{
        char to[256] = {0};

        to[json_escape(to, text, strlen(text))] = '\0';
        CU_ASSERT_STRING_EQUAL(to, want);
}

static void test_escapes(void)
{
        check_escaped("plain \xc3\xa9 \xf0\x9f\x98\x80", "plain \xc3\xa9 \xf0\x9f\x98\x80");
        check_escaped("\"\\\n\r\t\x1b\x7f", "\\\"\\\\\\u000a\\u000d\\u0009\\u001b\\u007f");
        check_escaped("\xc2\x85\xe2\x80\xa8", "\\u0085\\u2028");
        check_escaped("\xff\xc0\xaf", "\\ufffd\\ufffd\\ufffd");            /* overlong */
        check_escaped("\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd");            /* a surrogate */
        check_escaped("\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"); /* above U+10FFFF */
        check_escaped("\xe2\x82", "\\ufffd\\ufffd");                       /* cut short */
}

/* Whatever a guest sends: one line, valid JSON, its own fields untouched. */
static void test_no_input_forges_a_line(void)
{
        uint32_t random = 12345;

        for (int round = 0; round < 20000; round++) {
                struct audit_record record = AUDIT_RECORD_INIT(AUDIT_EGRESS_DENY);
                static const char hot[] = "\"\\\n\r,}{:\xc2\xe2\x80\xa8\xed\xf4\xff\x1b";
                char text[24];
                size_t n = 0;
                char *line;
                json_t *o;

                for (random = random * 1664525 + 1013904223; n < (random >> 8) % sizeof(text); n++) {
                        random = random * 1664525 + 1013904223;
                        text[n] = random >> 31 ? hot[(random >> 8) % (sizeof(hot) - 1)] : (char)(random >> 16);
                        text[n] = text[n] ? text[n] : 1;
                        random = random * 1664525 + 1013904223;
                        if ((random >> 8) % sizeof(text) == 0)
                                break;
                }
                text[n] = '\0';
                record.host = text;
                record.path = text;
                line = format(&record);
                CU_ASSERT_PTR_EQUAL(strchr(line, '\n'), line + strlen(line) - 1);
                o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
                CU_ASSERT_PTR_NOT_NULL_FATAL(o);
                CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(o, "event")), "egress_deny");
                CU_ASSERT_EQUAL(json_object_size(o), 6);
                json_decref(o);
                free(line);
        }
}

static void test_sequence_goes_on_after_a_restart(void)
{
        for (uint64_t i = 0; i < 3; i++) {
                struct audit *a = open_audit(AUDIT_SYNC_BATCH, 1 << 20);

                submit(a, AUDIT_START, NULL);
                submit(a, AUDIT_STOP, NULL);
                audit_free(a);
        }
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 6);
        empty_dir();
}

static void test_half_a_line_is_cut_off(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_NONE, 1 << 20);
        int fd;

        submit(a, AUDIT_START, NULL);
        audit_free(a);
        fd = open(path_of("audit.log"), O_WRONLY | O_APPEND);
        CU_ASSERT_EQUAL(write(fd, "{\"seq\":2,\"ts", 12), 12);
        close(fd);
        a = open_audit(AUDIT_SYNC_NONE, 1 << 20);
        submit(a, AUDIT_START, NULL);
        audit_free(a);
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 2);
        empty_dir();
}

static void test_foreign_file_is_not_continued(void)
{
        struct audit *a = NULL;
        int fd = open(path_of("audit.log"), O_WRONLY | O_CREAT, 0600);

        CU_ASSERT_EQUAL(write(fd, "not ours\n", 9), 9);
        close(fd);
        CU_ASSERT_EQUAL(
                audit_new(&(struct audit_options){.dir = dir, .rotate_bytes = 1 << 20, .notary_fd = -1}, &a), -EBADMSG);
        empty_dir();
}

static void test_only_one_writer(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_NONE, 1 << 20), *b = NULL;

        CU_ASSERT_EQUAL(
                audit_new(&(struct audit_options){.dir = dir, .rotate_bytes = 1 << 20, .notary_fd = -1}, &b), -EBUSY);
        audit_free(a);
        empty_dir();
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Small files, one record a write: the names in order hold the sequence in order, also after a restart on an empty log.
 */
static void test_rotation_leaves_no_gap(void)
{
        char *names[64];
        size_t names_n = 0;
        uint64_t seq = 1;
        DIR *d;

        for (int i = 0; i < 20; i++) {
                struct audit *a = open_audit(AUDIT_SYNC_BATCH, 200);

                submit(a, AUDIT_VM_ADD, "a");
                submit(a, AUDIT_VM_RM, "a");
                audit_free(a);
                if (i == 9)
                        CU_ASSERT_EQUAL(unlink(path_of("audit.log")), 0);
        }
        d = opendir(dir);
        for (struct dirent *e = readdir(d); e; e = readdir(d))
                if (strncmp(e->d_name, "audit.log.", 10) == 0 && names_n < 64)
                        names[names_n++] = strdup(e->d_name);
        (void)closedir(d);
        CU_ASSERT_TRUE(names_n > 5);
        qsort(names, names_n, sizeof(*names), compare_names);
        for (size_t i = 0; i < names_n; i++) {
                seq += check_file(names[i], seq);
                free(names[i]);
        }
        seq += check_file("audit.log", seq);
        CU_ASSERT_TRUE(seq > 36);
        empty_dir();
}

struct waiter {
        sem_t sem;
        int r;
};

static void waited(void *userdata, int r)
{
        struct waiter *w = userdata;

        w->r = r;
        sem_post(&w->sem);
}

static struct audit_record allowed(void)
{
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_EGRESS_OPEN);

        record.has_decision = true;
        record.reason = REASON_ALLOWED;
        return record;
}

static void test_each_answers_when_it_is_in_the_file(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_EACH, 1 << 20);
        struct audit_record record = allowed();
        struct waiter w = {.r = 1};

        sem_init(&w.sem, 0, 0);
        for (uint64_t i = 1; i <= 10; i++) {
                CU_ASSERT_EQUAL(audit_submit(a, &record, waited, &w), 0);
                sem_wait(&w.sem);
                CU_ASSERT_EQUAL(w.r, 0);
                CU_ASSERT_EQUAL(check_file("audit.log", 1), i);
        }
        audit_free(a);
        a = open_audit(AUDIT_SYNC_BATCH, 1 << 20);
        CU_ASSERT_EQUAL(audit_submit(a, &record, waited, &w), AUDIT_E_DONE);
        audit_free(a);
        CU_ASSERT_EQUAL(sem_trywait(&w.sem), -1);
        sem_destroy(&w.sem);
        empty_dir();
}

static void limit_file_size(rlim_t bytes)
{
        struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

        CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A file that may not grow stands for a full disk. */
static void test_failure_denies_then_heals_without_a_gap(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_EACH, 1 << 20);
        struct audit_record record = allowed();
        struct waiter w = {.r = 1};
        int r = -EIO;

        sem_init(&w.sem, 0, 0);
        submit(a, AUDIT_START, NULL);
        CU_ASSERT_EQUAL(audit_submit(a, &record, waited, &w), 0);
        sem_wait(&w.sem);
        signal(SIGXFSZ, SIG_IGN);
        limit_file_size(400);
        CU_ASSERT_EQUAL(audit_submit(a, &record, waited, &w), 0);
        sem_wait(&w.sem);
        CU_ASSERT_EQUAL(w.r, -EIO);
        submit(a, AUDIT_EGRESS_DENY, "kept");
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 2);
        limit_file_size(RLIM_INFINITY);
        for (int i = 0; i < 100 && r == -EIO; i++) {
                r = audit_submit(a, &record, waited, &w);
                if (r == -EIO)
                        usleep(20000);
        }
        CU_ASSERT_EQUAL_FATAL(r, 0);
        sem_wait(&w.sem);
        CU_ASSERT_EQUAL(w.r, 0);
        audit_free(a);
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 4);
        sem_destroy(&w.sem);
        empty_dir();
}

struct gate {
        sem_t reached;
        sem_t open;
};

static void wait_at_gate(void *userdata, int r)
{
        struct gate *gate = userdata;

        (void)r;
        sem_post(&gate->reached);
        sem_wait(&gate->open);
}

/* As long as the thread is held up. Said so early that much still finds room. */
static void test_behind(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_EACH, 64 << 20);
        struct audit_record record = allowed();
        char path[16 * 1024];
        unsigned n = 0, more = 0;
        struct gate gate;

        memset(path, 'p', sizeof(path));
        path[sizeof(path) - 1] = '\0';
        sem_init(&gate.reached, 0, 0);
        sem_init(&gate.open, 0, 0);
        CU_ASSERT_EQUAL(audit_submit(a, &record, wait_at_gate, &gate), 0);
        sem_wait(&gate.reached);
        CU_ASSERT_FALSE(audit_is_behind(a));
        record.path = path;
        for (; !audit_is_behind(a) && n < 10000; n++)
                CU_ASSERT_EQUAL(audit_submit(a, &record, NULL, NULL), 0);
        while (audit_submit(a, &record, NULL, NULL) == 0)
                more++;
        CU_ASSERT_TRUE(n > 16 && more > n / 2);
        sem_post(&gate.open);
        for (int i = 0; i < 500 && audit_is_behind(a); i++)
                usleep(20000);
        CU_ASSERT_FALSE(audit_is_behind(a));
        audit_free(a);
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 1 + n + more);
        sem_destroy(&gate.reached);
        sem_destroy(&gate.open);
        empty_dir();
}

static void *submit_many(void *userdata)
{
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_EGRESS_DENY);

        record.host = "many.example.org";
        for (int i = 0; i < 20000; i++)
                while (audit_submit(userdata, &record, NULL, NULL) == -ENOBUFS)
                        usleep(100);
        return NULL;
}

static void test_threads_share_one_sequence(void)
{
        struct audit *a = open_audit(AUDIT_SYNC_BATCH, 64 << 20);
        pthread_t threads[4];

        for (size_t i = 0; i < 4; i++)
                pthread_create(&threads[i], NULL, submit_many, a);
        for (size_t i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        audit_free(a);
        CU_ASSERT_EQUAL(check_file("audit.log", 1), 80000);
        empty_dir();
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"all fields, in order", test_all_fields_in_order},
                {"absent fields are left out", test_absent_fields_are_left_out},
                {"escapes", test_escapes},
                {"no input forges a line", test_no_input_forges_a_line},
                {"the sequence goes on after a restart", test_sequence_goes_on_after_a_restart},
                {"half a line is cut off", test_half_a_line_is_cut_off},
                {"a foreign file is not continued", test_foreign_file_is_not_continued},
                {"only one writer", test_only_one_writer},
                {"rotation leaves no gap", test_rotation_leaves_no_gap},
                {"each: answered when it is in the file", test_each_answers_when_it_is_in_the_file},
                {"failure denies, then heals without a gap", test_failure_denies_then_heals_without_a_gap},
                {"behind", test_behind},
                {"threads share one sequence", test_threads_share_one_sequence},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"audit", make_dir, remove_dir, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        log_setup("test_audit", LOG_LEVEL_ERROR);
        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
