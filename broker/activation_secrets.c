/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/activation_secrets.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <mbedtls/base64.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

struct activation_secrets {
        uint8_t *memory; /* the values, one behind the other */
        size_t memory_bytes;
        size_t used_bytes;
        size_t n;
        Wb__Secret items[WB_SECRETS_MAX];
        Wb__Secret *pointers[WB_SECRETS_MAX];
};

DEFINE_CLEANUP(struct activation_secrets *, activation_secrets_free);

void activation_secrets_free(struct activation_secrets *s)
{
        if (!s)
                return;
        if (s->memory) {
                explicit_bzero(s->memory, s->memory_bytes);
                (void)munmap(s->memory, s->memory_bytes);
        }
        for (size_t i = 0; i < s->n; i++)
                free(s->items[i].name);
        free(s);
}

static bool is_name(const char *text)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
        size_t n = strlen(text);

        return n > 0 && n <= WB_SECRET_NAME_MAX && strspn(text, letters) == n && !(*text >= '0' && *text <= '9');
}

/* Room for all values; base64 is longer than what it stands for. */
static int reserve(struct activation_secrets *s, json_t *object)
{
        const char *name;
        json_t *value;

        s->memory_bytes = 1;
        json_object_foreach (object, name, value)
                s->memory_bytes += json_string_length(value);

        void *memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED)
                return -ENOMEM;
        s->memory = memory;
        /* A small RLIMIT_MEMLOCK is no reason to refuse an activation. */
        (void)mlock(s->memory, s->memory_bytes);
        (void)madvise(s->memory, s->memory_bytes, MADV_DONTDUMP);
        return 0;
}

static const char *add(struct activation_secrets *s, const char *name, const json_t *value)
{
        const unsigned char *text = (const unsigned char *)json_string_value(value);
        Wb__Secret *item = &s->items[s->n];
        size_t n;

        if (s->n == WB_SECRETS_MAX)
                return "there are too many secrets";
        if (!is_name(name))
                return "a secret's name is of letters, digits and _";
        if (!text || json_string_length(value) % 4 != 0 ||
                mbedtls_base64_decode(s->memory + s->used_bytes, s->memory_bytes - s->used_bytes, &n, text,
                        json_string_length(value)) != 0)
                return "a secret's value is base64";
        if (n > WB_SECRET_MAX_BYTES)
                return "a secret is too large";
        wb__secret__init(item);
        item->name = strdup(name);
        if (!item->name)
                return "no memory";
        item->value = (ProtobufCBinaryData){.data = s->memory + s->used_bytes, .len = n};
        s->used_bytes += n;
        s->pointers[s->n++] = item;
        return NULL;
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
        int r = reserve(s, object);

        if (r < 0)
                return r;
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
