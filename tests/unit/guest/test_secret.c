/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

#define NOW_NS UINT64_C(1000)

static Wb__Secret make(char *name, char *value, uint64_t ttl_ms)
{
        Wb__Secret s = WB__SECRET__INIT;

        s.name = name;
        s.value.data = (uint8_t *)value;
        s.value.len = strlen(value);
        s.ttl_ms = ttl_ms;
        return s;
}

static struct secret_store *store_of(Wb__Secret *a, Wb__Secret *b)
{
        Wb__Secret *list[] = {a, b};
        struct secret_store *store = NULL;

        CU_ASSERT_EQUAL_FATAL(secret_store_new(list, b ? 2 : 1, NOW_NS, &store), 0);
        return store;
}

static void test_by_name(void)
{
        Wb__Secret a = make("A", "alpha", 0), b = make("B", "", 0);
        struct secret_store *store = store_of(&a, &b);
        const uint8_t *value;
        size_t n;

        CU_ASSERT_EQUAL(secret_get(store, "A", UINT64_MAX - 1, &value, &n), 0);
        CU_ASSERT_EQUAL(n, 5);
        CU_ASSERT_EQUAL(memcmp(value, "alpha", 5), 0);
        CU_ASSERT_EQUAL(secret_get(store, "B", NOW_NS, &value, &n), 0);
        CU_ASSERT_EQUAL(n, 0);
        CU_ASSERT_EQUAL(secret_get(store, "AB", NOW_NS, &value, &n), SECRET_E_UNKNOWN);
        CU_ASSERT_EQUAL(secret_get(NULL, "A", NOW_NS, &value, &n), SECRET_E_UNKNOWN);
        CU_ASSERT_EQUAL(secret_count(store), 2);
        secret_store_free(store);
}

static void test_expiry_is_told_apart_from_unknown(void)
{
        Wb__Secret a = make("A", "alpha", 3), b = make("B", "beta", 0);
        struct secret_store *store = store_of(&a, &b);
        uint64_t end_ns = NOW_NS + 3 * NSEC_PER_MSEC, next_ns;
        const uint8_t *value;
        size_t n;

        secret_expire(store, NOW_NS, &next_ns);
        CU_ASSERT_EQUAL(next_ns, end_ns);
        CU_ASSERT_EQUAL(secret_get(store, "A", end_ns - 1, &value, &n), 0);
        CU_ASSERT_EQUAL(secret_get(store, "A", end_ns, &value, &n), SECRET_E_EXPIRED);
        CU_ASSERT_EQUAL(secret_get(store, "A", NOW_NS, &value, &n), SECRET_E_EXPIRED); /* gone is gone */
        secret_expire(store, end_ns, &next_ns);
        CU_ASSERT_EQUAL(next_ns, UINT64_MAX);
        CU_ASSERT_EQUAL(secret_count(store), 1);
        secret_store_free(store);
}

static void test_a_name_twice_is_refused(void)
{
        Wb__Secret a = make("A", "alpha", 0), again = make("A", "other", 0), *list[] = {&a, &again};
        struct secret_store *store = NULL;

        CU_ASSERT_EQUAL(secret_store_new(list, 2, NOW_NS, &store), -EEXIST);
        CU_ASSERT_PTR_NULL(store);
}

static void test_the_longest_time_does_not_overflow(void)
{
        Wb__Secret a = make("A", "alpha", UINT64_MAX);
        struct secret_store *store = store_of(&a, NULL);
        uint64_t next_ns;

        secret_expire(store, UINT64_MAX - 1, &next_ns);
        CU_ASSERT_EQUAL(secret_count(store), 1);
        secret_store_free(store);
}

struct gone {
        unsigned n;
        char last[8];
};

static void on_gone(void *userdata, const char *name)
{
        struct gone *gone = userdata;

        gone->n++;
        (void)strcpy(gone->last, name);
}

static void test_whoever_watches_hears_of_each_end(void)
{
        Wb__Secret a = make("A", "alpha", 3), b = make("B", "beta", 0), other = make("B", "other", 0);
        struct secret_store *store = store_of(&a, &b);
        struct gone gone = {0};
        const uint8_t *value;
        uint64_t next_ns;
        size_t n;

        secret_watch(store, on_gone, &gone);
        secret_expire(store, NOW_NS + 3 * NSEC_PER_MSEC, &next_ns);
        CU_ASSERT_EQUAL(gone.n, 1);
        CU_ASSERT_STRING_EQUAL(gone.last, "A");
        CU_ASSERT_EQUAL(secret_put(store, &other, NOW_NS), 0);
        CU_ASSERT_EQUAL(gone.n, 2); /* the old value's files are old */
        CU_ASSERT_EQUAL(secret_get(store, "B", NOW_NS, &value, &n), 0);
        CU_ASSERT_EQUAL(memcmp(value, "other", 5), 0);
        CU_ASSERT_EQUAL(secret_revoke(store, "B", NOW_NS), 0);
        CU_ASSERT_EQUAL(gone.n, 3);
        CU_ASSERT_EQUAL(secret_revoke(store, "B", NOW_NS), SECRET_E_EXPIRED);
        CU_ASSERT_EQUAL(secret_revoke(store, "C", NOW_NS), SECRET_E_UNKNOWN);
        CU_ASSERT_EQUAL(secret_revoke(NULL, "C", NOW_NS), SECRET_E_UNKNOWN);
        CU_ASSERT_EQUAL(secret_get(store, "B", NOW_NS, &value, &n), SECRET_E_EXPIRED);
        CU_ASSERT_EQUAL(secret_put(store, &a, NOW_NS), 0); /* one that had expired */
        secret_store_free(store);
        CU_ASSERT_EQUAL(gone.n, 4);
        CU_ASSERT_STRING_EQUAL(gone.last, "A");
}

static void test_a_store_is_bounded(void)
{
        char name[] = "N00";
        Wb__Secret s = make(name, "x", 0);
        struct secret_store *store = store_of(&s, NULL);
        const char *listed;
        uint64_t expires_ns;

        for (unsigned i = 1; i < WB_SECRETS_MAX; i++) {
                name[1] = (char)('0' + i / 10);
                name[2] = (char)('0' + i % 10);
                CU_ASSERT_EQUAL(secret_put(store, &s, NOW_NS), 0);
        }
        CU_ASSERT_EQUAL(secret_put(store, &s, NOW_NS), 0); /* in its own place */
        name[0] = 'M';
        CU_ASSERT_EQUAL(secret_put(store, &s, NOW_NS), SECRET_E_FULL);
        CU_ASSERT_EQUAL(secret_revoke(store, "N00", NOW_NS), 0);
        CU_ASSERT_EQUAL(secret_count(store), WB_SECRETS_MAX - 1);
        CU_ASSERT_TRUE(secret_at(store, 0, &listed, &expires_ns));
        CU_ASSERT_STRING_EQUAL(listed, "N01");
        CU_ASSERT_EQUAL(expires_ns, UINT64_MAX);
        CU_ASSERT_FALSE(secret_at(store, WB_SECRETS_MAX - 1, &listed, &expires_ns));
        CU_ASSERT_FALSE(secret_at(NULL, 0, &listed, &expires_ns));
        secret_store_free(store);
}

/* A forked child that is not yet another program must not have them to lose. */
static void test_a_forked_child_cannot_read(void)
{
        Wb__Secret a = make("A", "alpha", 0);
        struct secret_store *store = store_of(&a, NULL);
        const uint8_t *value;
        size_t n;
        int ends[2], status;
        pid_t pid;

        CU_ASSERT_EQUAL_FATAL(secret_get(store, "A", NOW_NS, &value, &n), 0);
        CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
        CU_ASSERT_EQUAL(write(ends[1], value, n), 5); /* the control: here it can be read */
        pid = fork();
        if (pid == 0)
                _exit(write(ends[1], value, n) < 0 && errno == EFAULT ? 0 : 1);
        CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
        CU_ASSERT_EQUAL(status, 0);
        (void)close(ends[0]);
        (void)close(ends[1]);
        secret_store_free(store);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"by name", test_by_name},
                {"expiry is told apart from unknown", test_expiry_is_told_apart_from_unknown},
                {"a name twice is refused", test_a_name_twice_is_refused},
                {"the longest time does not overflow", test_the_longest_time_does_not_overflow},
                {"whoever watches hears of each end", test_whoever_watches_hears_of_each_end},
                {"a store is bounded", test_a_store_is_bounded},
                {"a forked child cannot read", test_a_forked_child_cannot_read},
                CU_TEST_INFO_NULL,
        };

        return suite_run("secret", tests);
}
