/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"

/* A secret has pages of its own, so that wiping and unmapping one leaves no trace of it and touches no other. */
struct secret {
        char name[WB_SECRET_NAME_MAX + 1];
        uint8_t *value; /* NULL once it has expired */
        size_t value_n;
        size_t mapped_bytes;
        uint64_t expires_ns; /* UINT64_MAX: with the store */
};

struct secret_store {
        enum secret_memory memory;
        void (*gone)(void *userdata, const char *name);
        void *userdata;
        size_t n;
        struct secret secrets[WB_SECRETS_MAX];
};

static const char *const memory_names[] = {
        [SECRET_MEMORY_SECRET] = "memfd_secret",
        [SECRET_MEMORY_LOCKED] = "mlock",
        [SECRET_MEMORY_PLAIN] = "not locked",
};

static size_t round_to_pages(size_t n)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        return n ? (n + page - 1) / page * page : page;
}

static void *map_memfd_secret(size_t bytes)
{
        _cleanup_close_ int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
        void *at;

        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
                return NULL;
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return at == MAP_FAILED ? NULL : at;
}

/* Pages for one secret in the best way that this kernel has. */
static void *map_pages(size_t bytes, enum secret_memory *ret_memory)
{
        enum secret_memory memory = SECRET_MEMORY_SECRET;
        void *at = map_memfd_secret(bytes);

        if (!at) {
                at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (at == MAP_FAILED)
                        return NULL;
                memory = mlock(at, bytes) == 0 ? SECRET_MEMORY_LOCKED : SECRET_MEMORY_PLAIN;
        }
        (void)madvise(at, bytes, MADV_DONTDUMP);
        (void)madvise(at, bytes, MADV_DONTFORK);
        *ret_memory = memory;
        return at;
}

static void wipe(struct secret_store *store, struct secret *s)
{
        if (!s->value)
                return;
        explicit_bzero(s->value, s->mapped_bytes);
        (void)munmap(s->value, s->mapped_bytes);
        s->value = NULL;
        s->value_n = 0;
        if (store->gone)
                store->gone(store->userdata, s->name);
}

static struct secret *find(struct secret_store *store, const char *name)
{
        for (size_t i = 0; store && i < store->n; i++)
                if (strcmp(store->secrets[i].name, name) == 0)
                        return &store->secrets[i];
        return NULL;
}

/* Into a place that holds none. */
static int fill(struct secret_store *store, struct secret *s, const Wb__Secret *from, uint64_t now_ns)
{
        enum secret_memory memory;
        uint64_t ttl_ns;

        assert(strlen(from->name) < sizeof(s->name)); /* the codec's bound */
        s->mapped_bytes = round_to_pages(from->value.len);
        s->value = map_pages(s->mapped_bytes, &memory);
        if (!s->value)
                return -ENOMEM;
        if (memory > store->memory)
                store->memory = memory;
        memcpy(s->name, from->name, strlen(from->name) + 1);
        if (from->value.len)
                memcpy(s->value, from->value.data, from->value.len);
        s->value_n = from->value.len;
        ttl_ns = from->ttl_ms > UINT64_MAX / NSEC_PER_MSEC ? UINT64_MAX : from->ttl_ms * NSEC_PER_MSEC;
        s->expires_ns = ttl_ns == 0 || ttl_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + ttl_ns;
        return 0;
}

int secret_put(struct secret_store *store, const Wb__Secret *from, uint64_t now_ns)
{
        struct secret *s = find(store, from->name);
        int r;

        if (s) {
                wipe(store, s);
                return fill(store, s, from, now_ns);
        }
        if (store->n == WB_SECRETS_MAX)
                return SECRET_E_FULL;
        r = fill(store, &store->secrets[store->n], from, now_ns);
        store->n += r == 0;
        return r;
}

int secret_revoke(struct secret_store *store, const char *name, uint64_t now_ns)
{
        struct secret *s = find(store, name);

        if (!s)
                return SECRET_E_UNKNOWN;
        if (!s->value)
                return SECRET_E_EXPIRED;
        s->expires_ns = now_ns;
        wipe(store, s);
        return 0;
}

void secret_watch(struct secret_store *store, void (*gone)(void *userdata, const char *name), void *userdata)
{
        store->gone = gone;
        store->userdata = userdata;
}

DEFINE_CLEANUP(struct secret_store *, secret_store_free);

int secret_store_new(Wb__Secret *const *secrets, size_t n, uint64_t now_ns, struct secret_store **ret)
{
        _cleanup_(secret_store_freep) struct secret_store *store = NULL;

        store = calloc(1, sizeof(*store));
        if (!store)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                int r = find(store, secrets[i]->name) ? -EEXIST : secret_put(store, secrets[i], now_ns);

                if (r != 0)
                        return r < 0 ? r : -E2BIG;
        }
        *ret = STEAL(store);
        return 0;
}

void secret_store_free(struct secret_store *store)
{
        if (!store)
                return;
        for (size_t i = 0; i < store->n; i++)
                wipe(store, &store->secrets[i]);
        free(store);
}

void secret_expire(struct secret_store *store, uint64_t now_ns, uint64_t *ret_next_ns)
{
        uint64_t next_ns = UINT64_MAX;

        for (size_t i = 0; store && i < store->n; i++) {
                struct secret *s = &store->secrets[i];

                if (s->expires_ns <= now_ns)
                        wipe(store, s);
                else if (s->expires_ns < next_ns)
                        next_ns = s->expires_ns;
        }
        *ret_next_ns = next_ns;
}

int secret_get(struct secret_store *store, const char *name, uint64_t now_ns, const uint8_t **ret_value, size_t *ret_n)
{
        struct secret *s = find(store, name);

        if (!s)
                return SECRET_E_UNKNOWN;
        if (s->expires_ns <= now_ns)
                wipe(store, s);
        if (!s->value)
                return SECRET_E_EXPIRED;
        *ret_value = s->value;
        *ret_n = s->value_n;
        return 0;
}

size_t secret_count(const struct secret_store *store)
{
        size_t n = 0;

        for (size_t i = 0; store && i < store->n; i++)
                n += store->secrets[i].value != NULL;
        return n;
}

bool secret_at(const struct secret_store *store, size_t i, const char **ret_name, uint64_t *ret_expires_ns)
{
        for (size_t at = 0; store && at < store->n; at++) {
                const struct secret *s = &store->secrets[at];

                if (!s->value || i-- > 0)
                        continue;
                *ret_name = s->name;
                *ret_expires_ns = s->expires_ns;
                return true;
        }
        return false;
}

enum secret_memory secret_memory_kind(const struct secret_store *store)
{
        return store ? store->memory : SECRET_MEMORY_SECRET;
}

const char *secret_memory_name(enum secret_memory kind)
{
        return memory_names[kind];
}
