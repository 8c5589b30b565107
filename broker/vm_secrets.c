/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/vm_secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/secret_delivery.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

struct vm_secrets {
        struct vm_entry *entry;
        struct secret_store store;
        struct event *expiry;
};

static void on_gone(void *userdata, const char *name)
{
        struct vm_entry *e = userdata;

        log_info("VM '%s': the time of secret '%s' is up", e->config.name, name);
        secret_delivery_start(e, DELIVERY_REVOKE, name, NULL);
}

/* Removes what is due, and waits for the next. */
static void expire(struct vm_secrets *s)
{
        uint64_t now_ns = clock_monotonic_ns(), next_ns;
        struct timeval tv;

        secret_store_expire(&s->store, now_ns, on_gone, s->entry, &next_ns);
        if (next_ns == UINT64_MAX) {
                (void)event_del(s->expiry);
                return;
        }
        tv.tv_sec = (time_t)((next_ns - now_ns) / NSEC_PER_SEC);
        tv.tv_usec = (suseconds_t)((next_ns - now_ns) % NSEC_PER_SEC / NSEC_PER_USEC + 1);
        if (tv.tv_usec == 1000000)
                tv = (struct timeval){.tv_sec = tv.tv_sec + 1};
        (void)event_add(s->expiry, &tv);
}

static void on_expiry(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        expire(userdata);
}

static struct vm_secrets *secrets_of(struct vm_entry *e)
{
        struct vm_secrets *s = e->secrets;

        if (s)
                return s;
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->entry = e;
        s->expiry = event_new(e->registry->base, -1, 0, on_expiry, s);
        if (!s->expiry) {
                free(s);
                return NULL;
        }
        e->secrets = s;
        return s;
}

void vm_secrets_free(struct vm_entry *e)
{
        if (!e->secrets)
                return;
        secret_store_done(&e->secrets->store);
        event_free(e->secrets->expiry);
        free(e->secrets);
        e->secrets = NULL;
}

struct secret_store *vm_secrets_store(const struct vm_entry *e)
{
        return e->secrets ? &e->secrets->store : NULL;
}

static int refuse(struct refusal *to, int error, enum reason reason, const char *text)
{
        to->reason = reason;
        (void)snprintf(to->message, sizeof(to->message), "%s", text);
        return error;
}

/* What is wrong with a put before anything is allocated for it. */
static int check_put(struct secret_store *store, const char *name, const char *text, size_t text_n, struct refusal *ret)
{
        char message[160];

        if (!secret_name_is_good(name))
                return refuse(ret, -EINVAL, REASON_ALLOWED, "a secret's name is of letters, digits and _");
        if (secret_value_room(text, text_n) > WB_SECRET_MAX_BYTES)
                return refuse(ret, -EINVAL, REASON_ALLOWED, secret_value_fault(-EMSGSIZE));
        switch (secret_store_room(store, name, secret_value_room(text, text_n))) {
        case SECRET_STORE_E_COUNT:
                (void)snprintf(message, sizeof(message), "this VM has %u secrets already", WB_SECRETS_MAX);
                return refuse(ret, -E2BIG, REASON_ALLOWED, message);
        case SECRET_STORE_E_BYTES:
                (void)snprintf(message, sizeof(message), "the secrets of this VM would be more than %u bytes together",
                        SECRET_STORE_MAX_BYTES);
                return refuse(ret, -E2BIG, REASON_ALLOWED, message);
        default: return 0;
        }
}

static int decode(const char *text, size_t text_n, struct secret_value *ret, struct refusal *ret_refusal)
{
        struct secret_value v;
        int r = secret_value_decode(text, text_n, &v);

        if (r < 0)
                return refuse(ret_refusal, r == -ENOMEM ? r : -EINVAL, REASON_ALLOWED, secret_value_fault(r));
        if (!v.locked) {
                secret_value_done(&v);
                return refuse(ret_refusal, -ENOMEM, REASON_ALLOWED,
                        "the broker may lock no more memory (RLIMIT_MEMLOCK), and keeps no secret in what may be swapped");
        }
        *ret = v;
        return 0;
}

int vm_secrets_put(struct vm_entry *e, const char *name, const char *text, size_t text_n, uint64_t ttl_ms,
        struct refusal *ret_refusal)
{
        struct vm_secrets *s = secrets_of(e);
        _cleanup_(secret_value_done) struct secret_value value = {0};
        int r;

        if (!s)
                return refuse(ret_refusal, -ENOMEM, REASON_ALLOWED, "no memory");
        r = check_put(&s->store, name, text, text_n, ret_refusal);
        if (r == 0)
                r = decode(text, text_n, &value, ret_refusal);
        if (r < 0)
                return r;
        if (registry_record(e, AUDIT_SECRET_PUT, REASON_ALLOWED, name) < 0) {
                (void)registry_record(e, AUDIT_SECRET_PUT, REASON_AUDIT_UNAVAILABLE, name);
                return refuse(
                        ret_refusal, -EPERM, REASON_AUDIT_UNAVAILABLE, "that the secret is put cannot be recorded");
        }
        secret_store_put(&s->store, name, &value, ttl_ms, clock_monotonic_ns());
        expire(s);
        log_info("VM '%s': secret '%s' put", e->config.name, name);
        return 0;
}

int vm_secrets_remove(struct vm_entry *e, const char *name)
{
        int r = e->secrets ? secret_store_remove(&e->secrets->store, name) : SECRET_STORE_E_UNKNOWN;

        if (r == 0) {
                expire(e->secrets);
                log_info("VM '%s': secret '%s' removed", e->config.name, name);
        }
        return r;
}

int vm_secrets_record_use(struct vm_entry *e, uint64_t generation, const char *name, struct refusal *ret_refusal)
{
        if (registry_record_of(e, generation, AUDIT_SECRET_USE, REASON_ALLOWED, name) == 0)
                return 0;
        (void)registry_record_of(e, generation, AUDIT_SECRET_USE, REASON_AUDIT_UNAVAILABLE, name);
        return refuse(ret_refusal, -EPERM, REASON_AUDIT_UNAVAILABLE, "that a secret is given cannot be recorded");
}

void vm_secrets_message(struct stored_secret *secret, Wb__Secret *ret)
{
        uint64_t now_ns = clock_monotonic_ns();

        wb__secret__init(ret);
        ret->name = secret->name;
        ret->value = (ProtobufCBinaryData){.data = secret->value.bytes, .len = secret->value.n};
        if (secret->expires_ns != UINT64_MAX) /* 0 would be for ever */
                ret->ttl_ms = secret->expires_ns > now_ns ? (secret->expires_ns - now_ns) / NSEC_PER_MSEC + 1 : 1;
}

static bool has_name(const Wb__Activate *activate, const char *name)
{
        for (size_t i = 0; i < activate->n_secrets; i++)
                if (strcmp(activate->secrets[i]->name, name) == 0)
                        return true;
        return false;
}

/* Beside the activation's own, in their array. False if there are too many. */
static bool join(struct secret_store *store, struct vm_secrets_sent *sent, Wb__Activate *activate)
{
        size_t n = activate->n_secrets;

        for (size_t i = 0; i < n; i++)
                sent->pointers[i] = activate->secrets[i];
        secret_store_replaced(store);
        for (size_t i = 0; i < store->n; i++) {
                struct stored_secret *secret = &store->secrets[i];

                if (!secret->value.bytes || has_name(activate, secret->name))
                        continue;
                if (n == WB_SECRETS_MAX)
                        return false;
                vm_secrets_message(secret, &sent->items[n]);
                sent->pointers[n] = &sent->items[n];
                secret_store_sent(secret);
                n++;
        }
        activate->secrets = sent->pointers;
        activate->n_secrets = n;
        return true;
}

int vm_secrets_activate(struct vm_entry *e, uint64_t generation, const struct activation_secrets *own,
        struct vm_secrets_sent *sent, Wb__Activate *activate, struct refusal *ret_refusal)
{
        int r = 0;

        activation_secrets_fill(own, activate);
        if (e->secrets) {
                expire(e->secrets);
                if (!join(&e->secrets->store, sent, activate))
                        return refuse(ret_refusal, -E2BIG, REASON_NOT_READY,
                                "there are too many secrets, those of this activation and the kept ones together");
        }
        for (size_t i = 0; i < activate->n_secrets && r == 0; i++)
                r = vm_secrets_record_use(e, generation, activate->secrets[i]->name, ret_refusal);
        return r;
}

void vm_secrets_activated(struct vm_entry *e)
{
        if (e->secrets)
                secret_store_activated(&e->secrets->store);
}

void vm_secrets_quiesced(struct vm_entry *e)
{
        if (e->secrets)
                secret_store_taken(&e->secrets->store, NULL);
}
