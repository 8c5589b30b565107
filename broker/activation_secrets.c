/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/activation_secrets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/secret_value.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

struct activation_secrets {
        size_t n;
        struct secret_value values[WB_SECRETS_MAX];
        Wb__Secret items[WB_SECRETS_MAX];
        Wb__Secret *pointers[WB_SECRETS_MAX];
};

DEFINE_CLEANUP(struct activation_secrets *, activation_secrets_free);

void activation_secrets_free(struct activation_secrets *s)
{
        if (!s)
                return;
        for (size_t i = 0; i < s->n; i++) {
                secret_value_done(&s->values[i]);
                free(s->items[i].name);
        }
        free(s);
}

/* Locked where that is allowed: a small RLIMIT_MEMLOCK is no reason to refuse an activation. */
static const char *add(struct activation_secrets *s, const char *name, const json_t *value)
{
        Wb__Secret *item = &s->items[s->n];
        struct secret_value *v = &s->values[s->n];
        int r;

        if (s->n == WB_SECRETS_MAX)
                return "there are too many secrets";
        if (!secret_name_is_good(name))
                return "a secret's name is of letters, digits and _";
        r = json_is_string(value) ? secret_value_decode(json_string_value(value), json_string_length(value), v)
                                  : -EINVAL;
        if (r < 0)
                return secret_value_fault(r);
        wb__secret__init(item);
        item->value = (ProtobufCBinaryData){.data = v->bytes, .len = v->n};
        item->name = strdup(name);
        s->pointers[s->n++] = item;
        return item->name ? NULL : "no memory";
}

static void wipe_texts(json_t *object)
{
        const char *name;
        json_t *value;

        json_object_foreach (object, name, value)
                if (json_is_string(value))
                        explicit_bzero((char *)(uintptr_t)json_string_value(value), json_string_length(value));
}

static int take_all(struct activation_secrets *s, json_t *object, const char **ret_fault)
{
        const char *name;
        json_t *value;

        json_object_foreach (object, name, value) {
                const char *fault = add(s, name, value);

                if (fault) {
                        *ret_fault = fault;
                        return -EINVAL;
                }
        }
        return 0;
}

int activation_secrets_take(json_t *object, struct activation_secrets **ret, const char **ret_fault)
{
        _cleanup_(activation_secrets_freep) struct activation_secrets *s = NULL;
        int r;

        if (object && !json_is_object(object)) {
                *ret_fault = "`secrets` must be an object of names and values in base64";
                return -EINVAL;
        }
        if (json_object_size(object) == 0) {
                *ret = NULL;
                return 0;
        }
        s = calloc(1, sizeof(*s));
        r = s ? take_all(s, object, ret_fault) : -ENOMEM;
        wipe_texts(object);
        if (r == 0)
                *ret = STEAL(s);
        return r;
}

void activation_secrets_fill(const struct activation_secrets *s, Wb__Activate *activate)
{
        if (!s)
                return;
        activate->n_secrets = s->n;
        activate->secrets = (Wb__Secret **)(uintptr_t)s->pointers;
}
