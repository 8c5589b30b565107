/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/secret_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

/* The test's own: looks at what is given back. */
static const uint8_t *watched; /* NULL: nothing is */
static bool was_wiped;

static int look_and_unmap(void *at, size_t n)
{
        if (at == watched) {
                was_wiped = true;
                for (size_t i = 0; i < n; i++)
                        was_wiped = was_wiped && watched[i] == 0;
                watched = NULL;
        }
        return (int)syscall(SYS_munmap, at, n);
}
int munmap(void *, size_t) __attribute__((alias("look_and_unmap")));

static struct secret_value value_of(const char *text)
{
        struct secret_value v = {0};

        CU_ASSERT_EQUAL_FATAL(secret_value_decode(text, strlen(text), &v), 0);
        return v;
}

static void put(struct secret_store *s, const char *name, const char *text, uint64_t ttl_ms, uint64_t now_ns)
{
        struct secret_value v = value_of(text);

        CU_ASSERT_EQUAL_FATAL(secret_store_room(s, name, v.n), 0);
        secret_store_put(s, name, &v, ttl_ms, now_ns);
        CU_ASSERT_PTR_NULL(v.bytes);
}

static bool has(struct secret_store *s, const char *name, const char *bytes)
{
        const struct stored_secret *secret = secret_store_find(s, name);

        return secret && secret->value.bytes && secret->value.n == strlen(bytes) &&
               memcmp(secret->value.bytes, bytes, strlen(bytes)) == 0;
}

static enum secret_in_guest in_guest(struct secret_store *s, const char *name)
{
        const struct stored_secret *secret = secret_store_find(s, name);

        return secret ? secret->in_guest : SECRET_IN_GUEST_MAX_;
}

static size_t gone_n;
static char gone_name[WB_SECRET_NAME_MAX + 1];

static void on_gone(void *userdata, const char *name)
{
        CU_ASSERT_PTR_EQUAL(userdata, &gone_n);
        gone_n++;
        (void)snprintf(gone_name, sizeof(gone_name), "%s", name);
}

static uint64_t expire(struct secret_store *s, uint64_t now_ns)
{
        uint64_t next_ns = 0;

        secret_store_expire(s, now_ns, on_gone, &gone_n, &next_ns);
        return next_ns;
}

/* ---- values */

static void test_values_are_decoded_and_bounded(void)
{
        static char text[4 * (WB_SECRET_MAX_BYTES / 3 + 2) + 1];
        struct secret_value v = value_of("YQBi"), empty = value_of("");
        size_t n = (WB_SECRET_MAX_BYTES + 2) / 3 * 4;

        CU_ASSERT(v.n == 3 && memcmp(v.bytes, "a\0b", 3) == 0);
        CU_ASSERT(empty.n == 0 && empty.bytes);
        secret_value_done(&v);
        secret_value_done(&v);
        secret_value_done(&empty);
        CU_ASSERT_EQUAL(secret_value_decode("YQ", 2, &v), -EINVAL);
        CU_ASSERT_EQUAL(secret_value_decode("#$%&", 4, &v), -EINVAL);
        CU_ASSERT_EQUAL(secret_value_decode("====", 4, &v), -EINVAL);
        CU_ASSERT_PTR_NULL(v.bytes);
        /* 65536 bytes are 87384 digits with two of padding. */
        memset(text, 'A', n - 2);
        memset(text + n - 2, '=', 2);
        CU_ASSERT_EQUAL_FATAL(secret_value_decode(text, n, &v), 0);
        CU_ASSERT_EQUAL(v.n, WB_SECRET_MAX_BYTES);
        secret_value_done(&v);
        text[n - 2] = 'A';
        CU_ASSERT_EQUAL(secret_value_decode(text, n, &v), -EMSGSIZE);
        CU_ASSERT(strstr(secret_value_fault(-EMSGSIZE), "65536") && WB_SECRET_MAX_BYTES == 65536);
}

static void test_names(void)
{
        char name[WB_SECRET_NAME_MAX + 2];

        memset(name, 'a', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        CU_ASSERT_FALSE(secret_name_is_good(name));
        CU_ASSERT_TRUE(secret_name_is_good(name + 1));
        CU_ASSERT_TRUE(secret_name_is_good("_A9z"));
        CU_ASSERT_FALSE(secret_name_is_good(""));
        CU_ASSERT_FALSE(secret_name_is_good("9A"));
        CU_ASSERT_FALSE(secret_name_is_good("A-B"));
        CU_ASSERT_FALSE(secret_name_is_good("../A"));
}

/* The flags of the mapping at that address, of /proc/self/smaps. */
static void flags_of(const void *at, char ret[512])
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/smaps", "re");
        uintptr_t begin = 0, end = 0;
        char line[512];

        ret[0] = '\0';
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        while (fgets(line, sizeof(line), f)) {
                char *next;
                uintptr_t first = strtoul(line, &next, 16);

                if (next > line && *next == '-') {
                        begin = first;
                        end = strtoul(next + 1, NULL, 16);
                } else if (strncmp(line, "VmFlags:", 8) == 0 && (uintptr_t)at >= begin && (uintptr_t)at < end) {
                        (void)snprintf(ret, 512, "%s", line);
                }
        }
}

static void test_memory_is_locked_and_not_dumped(void)
{
        struct secret_value v = value_of("YWJj");
        char flags[512];

        flags_of(v.bytes, flags);
        CU_ASSERT_PTR_NOT_NULL(strstr(flags, " dd"));
#ifndef __SANITIZE_ADDRESS__ /* which lets nobody lock memory, and says that it did */
        CU_ASSERT((strstr(flags, " lo") != NULL) == v.locked);
#endif
        secret_value_done(&v);
}

/* ---- what is kept */

static void test_put_replace_remove(void)
{
        struct secret_store s = {0};

        put(&s, "A", "YWFh", 0, 1);
        put(&s, "B", "YmJi", 0, 1);
        CU_ASSERT(s.n == 2 && s.bytes == 6 && has(&s, "A", "aaa") && has(&s, "B", "bbb"));
        put(&s, "A", "YQ==", 0, 1);
        CU_ASSERT(s.n == 2 && s.bytes == 4 && has(&s, "A", "a") && has(&s, "B", "bbb"));
        CU_ASSERT_EQUAL(secret_store_remove(&s, "A"), 0);
        CU_ASSERT_EQUAL(secret_store_remove(&s, "A"), SECRET_STORE_E_UNKNOWN);
        CU_ASSERT(s.n == 1 && s.bytes == 3 && has(&s, "B", "bbb") && !secret_store_find(&s, "A"));
        secret_store_done(&s);
        secret_store_done(&s);
        CU_ASSERT(s.n == 0 && s.bytes == 0);
}

static void test_values_are_wiped(void)
{
        struct secret_store s = {0};

        put(&s, "A", "YWFh", 0, 1);
        watched = secret_store_find(&s, "A")->value.bytes;
        was_wiped = false;
        put(&s, "A", "YmJi", 0, 1);
        CU_ASSERT(was_wiped && !watched);
        watched = secret_store_find(&s, "A")->value.bytes;
        was_wiped = false;
        CU_ASSERT_EQUAL(secret_store_remove(&s, "A"), 0);
        CU_ASSERT(was_wiped && !watched);
        put(&s, "A", "YWFh", 5, 0);
        watched = secret_store_find(&s, "A")->value.bytes;
        was_wiped = false;
        (void)expire(&s, 5 * NSEC_PER_MSEC);
        CU_ASSERT(was_wiped && !watched);
        put(&s, "A", "YWFh", 0, 0);
        watched = secret_store_find(&s, "A")->value.bytes;
        was_wiped = false;
        secret_store_done(&s);
        CU_ASSERT(was_wiped && !watched);
}

static void test_count_is_bounded(void)
{
        struct secret_store s = {0};
        char name[16];

        for (unsigned i = 0; i < WB_SECRETS_MAX; i++) {
                (void)snprintf(name, sizeof(name), "S%u", i);
                put(&s, name, "YQ==", 0, 1);
        }
        CU_ASSERT_EQUAL(secret_store_room(&s, "ONE_MORE", 1), SECRET_STORE_E_COUNT);
        CU_ASSERT_EQUAL(secret_store_room(&s, "S7", 1), 0);
        CU_ASSERT_EQUAL(secret_store_remove(&s, "S7"), 0);
        CU_ASSERT_EQUAL(secret_store_room(&s, "ONE_MORE", 1), 0);
        secret_store_done(&s);
}

static void test_bytes_are_bounded(void)
{
        static char text[WB_SECRET_MAX_BYTES / 3 * 4 + 1]; /* of 65535 bytes */
        struct secret_store s = {0};
        char name[16];
        unsigned n = 0;

        memset(text, 'A', sizeof(text) - 1);
        for (; secret_store_room(&s, "NEXT", WB_SECRET_MAX_BYTES - 1) == 0 && n < WB_SECRETS_MAX; n++) {
                (void)snprintf(name, sizeof(name), "S%u", n);
                put(&s, name, text, 0, 1);
        }
        CU_ASSERT_EQUAL(n, SECRET_STORE_MAX_BYTES / WB_SECRET_MAX_BYTES);
        CU_ASSERT_EQUAL(secret_store_room(&s, "NEXT", SECRET_STORE_MAX_BYTES - s.bytes), 0);
        CU_ASSERT_EQUAL(secret_store_room(&s, "NEXT", SECRET_STORE_MAX_BYTES - s.bytes + 1), SECRET_STORE_E_BYTES);
        /* The one that goes makes room for the one that takes its place. */
        CU_ASSERT_EQUAL(secret_store_room(&s, "S0", WB_SECRET_MAX_BYTES - 1), 0);
        secret_store_done(&s);
}

static void test_time_is_up(void)
{
        struct secret_store s = {0};

        gone_n = 0;
        put(&s, "SHORT", "YQ==", 10, 100 * NSEC_PER_MSEC);
        put(&s, "LONG", "YQ==", 30, 100 * NSEC_PER_MSEC);
        put(&s, "EVER", "YQ==", 0, 100 * NSEC_PER_MSEC);
        put(&s, "AGES", "YQ==", UINT64_MAX, 100 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(expire(&s, 110 * NSEC_PER_MSEC - 1), 110 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(s.n, 4);
        CU_ASSERT_EQUAL(expire(&s, 110 * NSEC_PER_MSEC), 130 * NSEC_PER_MSEC);
        CU_ASSERT(s.n == 3 && !secret_store_find(&s, "SHORT") && gone_n == 0);
        /* Put anew, its time begins anew. */
        put(&s, "LONG", "YQ==", 30, 120 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(expire(&s, 130 * NSEC_PER_MSEC), 150 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(expire(&s, 150 * NSEC_PER_MSEC), UINT64_MAX);
        CU_ASSERT(s.n == 2 && has(&s, "EVER", "a") && has(&s, "AGES", "a"));
        secret_store_done(&s);
}

/* ---- what the guest has of it */

static void activate(struct secret_store *s)
{
        secret_store_replaced(s);
        for (size_t i = 0; i < s->n; i++)
                if (s->secrets[i].value.bytes)
                        secret_store_sent(&s->secrets[i]);
}

static void test_an_activation_brings_them(void)
{
        struct secret_store s = {0};

        put(&s, "A", "YQ==", 0, 1);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_ABSENT);
        activate(&s);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_UNSURE);
        secret_store_activated(&s);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_HELD);
        put(&s, "A", "Yg==", 0, 1);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_UNSURE);
        secret_store_taken(&s, NULL);
        CU_ASSERT(in_guest(&s, "A") == SECRET_ABSENT && has(&s, "A", "b"));
        secret_store_done(&s);
}

static void test_what_changes_during_an_activation(void)
{
        struct secret_store s = {0};

        put(&s, "REPLACED", "YQ==", 0, 1);
        put(&s, "REMOVED", "YQ==", 0, 1);
        put(&s, "KEPT", "YQ==", 0, 1);
        activate(&s);
        put(&s, "REPLACED", "Yg==", 0, 1);
        put(&s, "NEW", "Yg==", 0, 1);
        CU_ASSERT_EQUAL(secret_store_remove(&s, "REMOVED"), 0);
        secret_store_activated(&s);
        CU_ASSERT_EQUAL(in_guest(&s, "KEPT"), SECRET_HELD);
        CU_ASSERT_EQUAL(in_guest(&s, "REPLACED"), SECRET_UNSURE);
        CU_ASSERT_EQUAL(in_guest(&s, "NEW"), SECRET_ABSENT);
        CU_ASSERT(in_guest(&s, "REMOVED") == SECRET_UNSURE && !secret_store_find(&s, "REMOVED")->value.bytes);
        /* The next activation brings all anew: what was to be revoked is gone with what it was in. */
        activate(&s);
        secret_store_activated(&s);
        CU_ASSERT_PTR_NULL(secret_store_find(&s, "REMOVED"));
        CU_ASSERT_EQUAL(in_guest(&s, "REPLACED"), SECRET_HELD);
        secret_store_done(&s);
}

static void test_what_goes_leaves_its_name_until_it_is_revoked(void)
{
        struct secret_store s = {0};

        gone_n = 0;
        put(&s, "A", "YWFh", 10, 0);
        put(&s, "B", "YmJi", 0, 0);
        activate(&s);
        secret_store_activated(&s);
        (void)expire(&s, 10 * NSEC_PER_MSEC);
        CU_ASSERT(gone_n == 1 && strcmp(gone_name, "A") == 0);
        CU_ASSERT(s.n == 2 && s.bytes == 3 && in_guest(&s, "A") == SECRET_UNSURE);
        CU_ASSERT_EQUAL(secret_store_remove(&s, "A"), SECRET_STORE_E_UNKNOWN);
        (void)expire(&s, 20 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(gone_n, 1);
        secret_store_taken(&s, "A");
        CU_ASSERT(s.n == 1 && !secret_store_find(&s, "A"));
        secret_store_taken(&s, "B");
        CU_ASSERT(has(&s, "B", "bbb") && in_guest(&s, "B") == SECRET_ABSENT);
        secret_store_done(&s);
}

static void test_an_answer_to_an_older_value_counts_for_nothing(void)
{
        struct secret_store s = {0};
        uint64_t first;

        put(&s, "A", "YQ==", 0, 0);
        first = secret_store_find(&s, "A")->version;
        secret_store_sent(secret_store_find(&s, "A"));
        put(&s, "A", "Yg==", 0, 0);
        secret_store_given(&s, "A", first);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_UNSURE);
        secret_store_given(&s, "A", secret_store_find(&s, "A")->version);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_HELD);
        CU_ASSERT_EQUAL(secret_store_remove(&s, "A"), 0);
        secret_store_given(&s, "A", 2);
        CU_ASSERT_EQUAL(in_guest(&s, "A"), SECRET_UNSURE);
        secret_store_given(&s, "NEVER", 2);
        secret_store_done(&s);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"values are decoded and bounded", test_values_are_decoded_and_bounded},
                {"names", test_names},
                {"memory is locked and not dumped", test_memory_is_locked_and_not_dumped},
                {"put, replace, remove", test_put_replace_remove},
                {"values are wiped", test_values_are_wiped},
                {"the count is bounded", test_count_is_bounded},
                {"the bytes are bounded", test_bytes_are_bounded},
                {"time is up", test_time_is_up},
                {"an activation brings them", test_an_activation_brings_them},
                {"what changes during an activation", test_what_changes_during_an_activation},
                {"what goes leaves its name until it is revoked", test_what_goes_leaves_its_name_until_it_is_revoked},
                {"an answer to an older value counts for nothing", test_an_answer_to_an_older_value_counts_for_nothing},
                CU_TEST_INFO_NULL,
        };

        return suite_run("secret_store", tests);
}
