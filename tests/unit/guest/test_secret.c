/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
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
                {"a forked child cannot read", test_a_forked_child_cannot_read},
                CU_TEST_INFO_NULL,
        };

        return suite_run("secret", tests);
}
