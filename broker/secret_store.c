/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/secret_store.h"

#include <assert.h>
#include <string.h>

#include "proto/base/clock.h"

struct stored_secret *secret_store_find(struct secret_store *s, const char *name)
{
        for (size_t i = 0; i < s->n; i++)
                if (strcmp(s->secrets[i].name, name) == 0)
                        return &s->secrets[i];
        return NULL;
}

static void wipe_value(struct secret_store *s, struct stored_secret *secret)
{
        s->bytes -= secret->value.n;
        secret_value_done(&secret->value);
        secret->expires_ns = UINT64_MAX;
}

static void drop(struct secret_store *s, struct stored_secret *secret)
{
        size_t behind = (size_t)(&s->secrets[s->n] - (secret + 1));

        wipe_value(s, secret);
        memmove(secret, secret + 1, behind * sizeof(*secret));
        s->n--;
}

int secret_store_room(const struct secret_store *s, const char *name, size_t n)
{
        const struct stored_secret *old = secret_store_find((struct secret_store *)(uintptr_t)s, name);

        if (!old && s->n == WB_SECRETS_MAX)
                return SECRET_STORE_E_COUNT;
        return s->bytes - (old ? old->value.n : 0) + n > SECRET_STORE_MAX_BYTES ? SECRET_STORE_E_BYTES : 0;
}

void secret_store_put(
        struct secret_store *s, const char *name, struct secret_value *value, uint64_t ttl_ms, uint64_t now_ns)
{
        struct stored_secret *secret = secret_store_find(s, name);
        uint64_t ttl_ns = ttl_ms > UINT64_MAX / NSEC_PER_MSEC ? UINT64_MAX : ttl_ms * NSEC_PER_MSEC;

        assert(secret_store_room(s, name, value->n) == 0 && strlen(name) <= WB_SECRET_NAME_MAX);
        if (!secret) {
                secret = &s->secrets[s->n++];
                *secret = (struct stored_secret){.in_guest = SECRET_ABSENT};
                memcpy(secret->name, name, strlen(name) + 1);
        }
        wipe_value(s, secret);
        secret->value = *value;
        *value = (struct secret_value){0};
        s->bytes += secret->value.n;
        secret->version = ++s->versions;
        secret->expires_ns = ttl_ns == 0 || ttl_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + ttl_ns;
        if (secret->in_guest == SECRET_HELD)
                secret->in_guest = SECRET_UNSURE;
}

/* True if a name stays behind: the guest may still hold it. */
static bool retire(struct secret_store *s, struct stored_secret *secret)
{
        if (secret->in_guest == SECRET_ABSENT) {
                drop(s, secret);
                return false;
        }
        wipe_value(s, secret);
        secret->in_guest = SECRET_UNSURE;
        return true;
}

int secret_store_remove(struct secret_store *s, const char *name)
{
        struct stored_secret *secret = secret_store_find(s, name);

        if (!secret || !secret->value.bytes)
                return SECRET_STORE_E_UNKNOWN;
        (void)retire(s, secret);
        return 0;
}

void secret_store_expire(struct secret_store *s, uint64_t now_ns, void (*gone)(void *userdata, const char *name),
        void *userdata, uint64_t *ret_next_ns)
{
        uint64_t next_ns = UINT64_MAX;

        for (size_t i = s->n; i-- > 0;) {
                struct stored_secret *secret = &s->secrets[i];

                if (secret->expires_ns > now_ns) {
                        if (secret->expires_ns < next_ns)
                                next_ns = secret->expires_ns;
                } else if (retire(s, secret)) {
                        gone(userdata, secret->name);
                }
        }
        *ret_next_ns = next_ns;
}

void secret_store_done(struct secret_store *s)
{
        while (s->n)
                drop(s, &s->secrets[s->n - 1]);
}

void secret_store_replaced(struct secret_store *s)
{
        for (size_t i = 0; i < s->n; i++) {
                s->secrets[i].sent_version = 0;
                s->secrets[i].in_guest = SECRET_UNSURE;
        }
}

void secret_store_sent(struct stored_secret *secret)
{
        secret->sent_version = secret->version;
        secret->in_guest = SECRET_UNSURE;
}

/* What was put or removed since it was sent is not what the guest has now. */
void secret_store_activated(struct secret_store *s)
{
        for (size_t i = s->n; i-- > 0;) {
                struct stored_secret *secret = &s->secrets[i];

                if (secret->value.bytes && secret->sent_version == secret->version)
                        secret->in_guest = SECRET_HELD;
                else if (!secret->value.bytes && !secret->sent_version)
                        drop(s, secret);
        }
}

void secret_store_given(struct secret_store *s, const char *name, uint64_t version)
{
        struct stored_secret *secret = secret_store_find(s, name);

        if (secret && secret->value.bytes && secret->version == version)
                secret->in_guest = SECRET_HELD;
}

void secret_store_taken(struct secret_store *s, const char *name)
{
        for (size_t i = s->n; i-- > 0;) {
                struct stored_secret *secret = &s->secrets[i];

                if (name && strcmp(secret->name, name) != 0)
                        continue;
                if (secret->value.bytes)
                        secret->in_guest = SECRET_ABSENT;
                else
                        drop(s, secret);
        }
}
