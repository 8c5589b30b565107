/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/secret_answer.h"

#include <assert.h>
#include <string.h>

#include "broker/control_op.h"
#include "broker/vm_secrets.h"
#include "proto/base/clock.h"

static const char *const in_guest_words[] = {
        [SECRET_ABSENT] = "absent",
        [SECRET_HELD] = "held",
        [SECRET_UNSURE] = "unsure",
};
static_assert(sizeof(in_guest_words) / sizeof(*in_guest_words) == SECRET_IN_GUEST_MAX_, "a state has no word");

json_t *secret_answer_put(bool in_guest)
{
        return json_pack("{s:b, s:s}", "ok", 1, "guest", in_guest_words[in_guest ? SECRET_HELD : SECRET_ABSENT]);
}

json_t *secret_answer_not_given(enum reason reason, const char *why)
{
        json_t *a = answer_error(
                "the broker keeps it for the next activation, but the guest does not have it now: %s", why);

        if (reason != REASON_ALLOWED)
                (void)json_object_set_new(a, "reason", json_string(reason_info(reason)->name));
        return a;
}

json_t *secret_answer_not_revoked(const char *why)
{
        return answer_error("the broker keeps it no more, but the guest may still have it: %s", why);
}

json_t *secret_answer_absent(const struct vm_entry *e, const char *name)
{
        json_t *a = answer_error("VM '%s' has no secret '%s'", e->config.name, name);

        (void)json_object_set_new(a, "absent", json_true());
        return a;
}

static const Wb__SecretEntry *find_entry(const Wb__SecretEntries *entries, const char *name)
{
        for (size_t i = 0; i < entries->n_entries; i++)
                if (strcmp(entries->entries[i]->name, name) == 0)
                        return entries->entries[i];
        return NULL;
}

static json_t *describe(const char *name, uint64_t left_ms, enum secret_in_guest in_guest, bool is_kept)
{
        json_int_t left = left_ms > INT64_MAX ? INT64_MAX : (json_int_t)left_ms; /* a guest may say anything */

        return json_pack("{s:s, s:o, s:s, s:b}", "name", name, "left_ms", left ? json_integer(left) : json_null(),
                "guest", in_guest_words[in_guest], "kept", is_kept);
}

static json_t *describe_stored(const struct stored_secret *secret, uint64_t now_ns)
{
        uint64_t left_ms = 0;

        if (secret->expires_ns != UINT64_MAX)
                left_ms = secret->expires_ns > now_ns ? (secret->expires_ns - now_ns) / NSEC_PER_MSEC + 1 : 1;
        return describe(secret->name, left_ms, secret->in_guest, secret->value.bytes != NULL);
}

/* At most as many as a guest can have; it may claim more. */
static void add_guests_own(json_t *list, struct secret_store *store, const Wb__SecretEntries *entries)
{
        for (size_t i = 0; i < entries->n_entries && i < WB_SECRETS_MAX; i++) {
                const Wb__SecretEntry *entry = entries->entries[i];

                if (!store || !secret_store_find(store, entry->name))
                        (void)json_array_append_new(list, describe(entry->name, entry->left_ms, SECRET_HELD, false));
        }
}

json_t *secret_answer_list(struct vm_entry *e, const Wb__SecretEntries *entries, const char *fault)
{
        struct secret_store *store = vm_secrets_store(e);
        json_t *list = json_array(), *answer;
        uint64_t now_ns = clock_monotonic_ns();

        for (size_t i = store ? store->n : 0; entries && i-- > 0;)
                if (!find_entry(entries, store->secrets[i].name))
                        secret_store_taken(store, store->secrets[i].name);
        for (size_t i = 0; store && i < store->n; i++)
                (void)json_array_append_new(list, describe_stored(&store->secrets[i], now_ns));
        if (entries)
                add_guests_own(list, store, entries);
        answer = json_pack("{s:b, s:o}", "ok", 1, "secrets", list);
        if (fault)
                (void)json_object_set_new(answer, "guest_error", json_string(fault));
        return answer;
}
