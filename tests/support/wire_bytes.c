/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/wire_bytes.h"

#include <ctype.h>
#include <mbedtls/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grown {
        uint8_t *bytes;
        size_t n;
        size_t room;
};

static void append(struct grown *g, const void *bytes, size_t n)
{
        if (g->n + n + 1 > g->room) {
                g->room = 2 * (g->n + n + 1);
                g->bytes = realloc(g->bytes, g->room);
                if (!g->bytes)
                        abort();
        }
        memcpy(g->bytes + g->n, bytes, n);
        g->n += n;
        g->bytes[g->n] = '\0';
}

static void append_hex(struct grown *g, const char *hex)
{
        for (; *hex; hex++) {
                char pair[3] = {hex[0], hex[1], '\0'};
                uint8_t byte = (uint8_t)strtoul(pair, NULL, 16);

                if (isspace((unsigned char)*hex))
                        continue;
                append(g, &byte, 1);
                hex++;
        }
}

static void append_base64(struct grown *g, const char *text)
{
        size_t n = strlen(text), decoded_n = 0;
        uint8_t *decoded = malloc(n + 1);

        if (!decoded || mbedtls_base64_decode(decoded, n + 1, &decoded_n, (const uint8_t *)text, n))
                abort();
        append(g, decoded, decoded_n);
        free(decoded);
}

static void append_part(struct grown *g, const json_t *part)
{
        const char *hex = json_string_value(json_object_get(part, "hex"));
        const char *base64 = json_string_value(json_object_get(part, "base64"));
        const json_t *repeat = json_object_get(part, "repeat");

        if (json_is_string(part)) {
                append(g, json_string_value(part), json_string_length(part));
        } else if (hex) {
                append_hex(g, hex);
        } else if (base64) {
                append_base64(g, base64);
        } else if (repeat) {
                for (json_int_t i = 0; i < json_integer_value(json_object_get(part, "times")); i++)
                        append(g, json_string_value(repeat), json_string_length(repeat));
        } else {
                fprintf(stderr, "a part of bytes that README-wire.md does not know\n");
                exit(1);
        }
}

uint8_t *wire_bytes(const json_t *object, const char *key, size_t *ret_n)
{
        const json_t *whole = json_object_get(object, key);
        struct grown g = {0};
        char key64[64];

        (void)snprintf(key64, sizeof(key64), "%s64", key);
        const char *base64 = json_string_value(json_object_get(object, key64));

        if (!whole && !base64)
                return NULL;
        append(&g, "", 0);
        if (base64)
                append_base64(&g, base64);
        else if (json_is_object(whole) || json_is_string(whole))
                append_part(&g, whole);
        for (size_t i = 0; i < json_array_size(whole); i++)
                append_part(&g, json_array_get(whole, i));
        *ret_n = g.n;
        return g.bytes;
}
