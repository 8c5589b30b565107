/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/codec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/frame.h"
#include "proto/wire/hostname.h"
#include "proto/wire/limits.h"

/*
 * The checks walk the messages by their descriptors, so that a new field is checked from the day it exists: by the
 * defaults, or by its line in the table. The defaults are strict; the table loosens them.
 */
enum text_kind {
        TEXT_PRINTABLE, /* UTF-8 without control bytes */
        TEXT_KERNEL,    /* any byte but NUL */
        TEXT_OPAQUE,    /* any byte */
};

struct bounds {
        const char *message;
        const char *field;
        enum text_kind kind;
        size_t least_bytes;
        size_t most_bytes;
        size_t least_items;
        size_t most_items;
};

#define TEXT_DEFAULT_MOST  4096u
#define ITEMS_DEFAULT_MOST 1024u

static const struct bounds string_default = {
        .kind = TEXT_PRINTABLE, .most_bytes = TEXT_DEFAULT_MOST, .most_items = ITEMS_DEFAULT_MOST};
static const struct bounds bytes_default = {
        .kind = TEXT_KERNEL, .most_bytes = TEXT_DEFAULT_MOST, .most_items = ITEMS_DEFAULT_MOST};

/*
 * argv and the environment may be larger than the kernel takes: the exec then fails with args_too_long, which says more
 * than a broken conversation.
 */
static const struct bounds exceptions[] = {
        {"wb.Activate", "seed", TEXT_OPAQUE, WB_SEED_BYTES, WB_SEED_BYTES, 0, 1},
        {"wb.Activate", "nonce", TEXT_OPAQUE, WB_NONCE_BYTES, WB_NONCE_BYTES, 0, 1},
        {"wb.Activate", "hostname", TEXT_PRINTABLE, 0, WB_HOSTNAME_MAX, 0, 1},
        {"wb.Activate", "secrets", TEXT_OPAQUE, 0, 0, 0, WB_SECRETS_MAX},
        {"wb.Secret", "name", TEXT_PRINTABLE, 1, WB_SECRET_NAME_MAX, 0, 1},
        {"wb.SecretRevoke", "name", TEXT_PRINTABLE, 1, WB_SECRET_NAME_MAX, 0, 1},
        {"wb.Secret", "value", TEXT_OPAQUE, 0, WB_SECRET_MAX_BYTES, 0, 1},
        {"wb.Network", "ports", TEXT_OPAQUE, 0, 0, 0, UINT16_MAX},
        {"wb.Network", "ca_pem", TEXT_OPAQUE, 1, WB_FRAME_MAX_BYTES, 0, 64},
        {"wb.ExecStart", "argv", TEXT_KERNEL, 0, WB_FRAME_MAX_BYTES, 1, WB_ARGS_MAX},
        {"wb.ExecStart", "env", TEXT_KERNEL, 1, WB_FRAME_MAX_BYTES, 0, WB_ARGS_MAX},
        {"wb.ExecStart", "seccomp_program", TEXT_OPAQUE, 0, WB_SECCOMP_MAX_BYTES, 0, 1},
        {"wb.ExecStartMore", "argv", TEXT_KERNEL, 0, WB_FRAME_MAX_BYTES, 0, WB_ARGS_MAX},
        {"wb.ExecStartMore", "env", TEXT_KERNEL, 1, WB_FRAME_MAX_BYTES, 0, WB_ARGS_MAX},
        {"wb.ExecEntry", "cmd", TEXT_KERNEL, 0, WB_FRAME_MAX_BYTES, 0, WB_ARGS_MAX},
        {"wb.NameQuery", "name", TEXT_PRINTABLE, 1, HOSTNAME_MAX_BYTES, 0, 1},
        {"wb.NameAnswer", "reason", TEXT_PRINTABLE, 1, WB_SERVICE_REASON_MAX, 0, 1},
        {"wb.NameAnswer", "detail", TEXT_PRINTABLE, 0, WB_SERVICE_DETAIL_MAX, 0, 1},
        {"wb.ServiceEvent", "name", TEXT_PRINTABLE, 1, WB_SERVICE_REASON_MAX, 0, 1},
        {"wb.ServiceEvent", "detail", TEXT_PRINTABLE, 0, WB_SERVICE_DETAIL_MAX, 0, 1},
        {"wb.Chunk", "data", TEXT_OPAQUE, 0, WB_CHUNK_MAX_BYTES, 0, 1},
        {"wb.FileData", "data", TEXT_OPAQUE, 1, WB_CHUNK_MAX_BYTES, 0, 1},
        {"wb.FileEntry", "extents", TEXT_OPAQUE, 0, 0, 0, WB_EXTENTS_MAX},
        {"wb.FilePut", "name", TEXT_KERNEL, 0, 255, 0, 1},
        {"wb.MemoryResize", "filesystems", TEXT_OPAQUE, 0, 0, 0, WB_MEMORY_FILESYSTEMS_MAX},
        {"wb.MemoryFilesystemSize", "path", TEXT_KERNEL, 1, WB_MEMORY_PATH_MAX, 0, 1},
        {"wb.MemoryLimits", "filesystems", TEXT_OPAQUE, 0, 0, 0, WB_MEMORY_FILESYSTEMS_MAX},
};

static const struct bounds *bounds_of(const ProtobufCMessageDescriptor *message, const ProtobufCFieldDescriptor *field)
{
        for (size_t i = 0; i < sizeof(exceptions) / sizeof(*exceptions); i++)
                if (strcmp(exceptions[i].message, message->name) == 0 && strcmp(exceptions[i].field, field->name) == 0)
                        return &exceptions[i];
        return field->type == PROTOBUF_C_TYPE_BYTES ? &bytes_default : &string_default;
}

/* Length of a well-formed UTF-8 sequence that is no control character, or 0 (RFC 3629: no surrogates, no overlong
 * forms). */
static size_t printable_sequence(const uint8_t *p, size_t n)
{
        uint32_t value;
        size_t length;

        if (p[0] < 0x80)
                return p[0] >= 0x20 && p[0] != 0x7f;
        length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
        if (p[0] < 0xc2 || p[0] > 0xf4 || n < length)
                return 0;
        value = p[0] & (0x7fu >> length);
        for (size_t i = 1; i < length; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                value = value << 6 | (p[i] & 0x3fu);
        }
        if (value < 0xa0 || (length == 3 && value < 0x800) || (length == 4 && value < 0x10000) || value > 0x10ffff ||
                (value >= 0xd800 && value <= 0xdfff))
                return 0;
        return length;
}

static bool text_is_good(const struct bounds *b, const uint8_t *p, size_t n)
{
        if (n < b->least_bytes || n > b->most_bytes)
                return false;
        if (b->kind == TEXT_KERNEL)
                return !n || !memchr(p, 0, n);
        if (b->kind == TEXT_PRINTABLE)
                for (size_t i = 0, step; i < n; i += step) {
                        step = printable_sequence(p + i, n - i);
                        if (!step)
                                return false;
                }
        return true;
}

static bool message_is_good(const ProtobufCMessage *m);

/* One value of a field, at the address where protobuf-c keeps it. */
static bool value_is_good(const struct bounds *b, const ProtobufCFieldDescriptor *field, const void *at)
{
        switch ((int)field->type) {
        case PROTOBUF_C_TYPE_STRING: {
                const char *text = *(char *const *)at;

                return !text || text_is_good(b, (const uint8_t *)text, strlen(text));
        }
        case PROTOBUF_C_TYPE_BYTES: {
                const ProtobufCBinaryData *data = at;

                return text_is_good(b, data->data, data->len);
        }
        case PROTOBUF_C_TYPE_ENUM:
                return protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)at) != NULL;
        case PROTOBUF_C_TYPE_MESSAGE: {
                const ProtobufCMessage *m = *(ProtobufCMessage *const *)at;

                return !m || message_is_good(m);
        }
        default: return true;
        }
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
        switch ((int)field->type) {
        case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
        case PROTOBUF_C_TYPE_ENUM: return sizeof(int);
        default: return sizeof(void *); /* strings and messages; the rest is not looked at */
        }
}

static bool field_is_good(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
        const struct bounds *b = bounds_of(m->descriptor, field);
        const uint8_t *at = (const uint8_t *)m + field->offset;
        const uint8_t *items;
        size_t n;

        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
                uint32_t chosen = *(const uint32_t *)((const uint8_t *)m + field->quantifier_offset);

                return chosen != field->id || value_is_good(b, field, at);
        }
        if (field->label != PROTOBUF_C_LABEL_REPEATED)
                return value_is_good(b, field, at);
        n = *(const size_t *)((const uint8_t *)m + field->quantifier_offset);
        if (n < b->least_items || n > b->most_items)
                return false;
        items = *(uint8_t *const *)at;
        for (size_t i = 0; i < n; i++)
                if (!value_is_good(b, field, items + i * value_size(field)))
                        return false;
        return true;
}

static bool message_is_good(const ProtobufCMessage *m)
{
        for (unsigned i = 0; i < m->descriptor->n_fields; i++)
                if (!field_is_good(m, &m->descriptor->fields[i]))
                        return false;
        return true;
}

/*
 * Unpacking may use only so much memory: many small items of a frame would else grow twentyfold. What is freed
 * meanwhile is not given back, so the count is an upper bound.
 */
struct budget {
        size_t left_bytes;
};
#define BUDGET_BYTES     (4u * 1024u * 1024u)
#define ALLOCATION_BYTES 32u /* malloc's own cost */

static void *budget_alloc(void *data, size_t size)
{
        struct budget *budget = data;

        if (size > BUDGET_BYTES || size + ALLOCATION_BYTES > budget->left_bytes)
                return NULL;
        budget->left_bytes -= size + ALLOCATION_BYTES;
        return malloc(size);
}

static void budget_free(void *data, void *pointer)
{
        (void)data;
        free(pointer);
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *payload, size_t n)
{
        struct budget budget = {.left_bytes = BUDGET_BYTES};
        ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};

        if (n > WB_FRAME_MAX_BYTES)
                return NULL;
        return protobuf_c_message_unpack(descriptor, &allocator, n, payload);
}

int codec_unpack_to_agent(const uint8_t *payload, size_t n, Wb__ToAgent **ret)
{
        Wb__ToAgent *m = (Wb__ToAgent *)unpack(&wb__to_agent__descriptor, payload, n);

        if (!m)
                return CODEC_E_MALFORMED;
        if (m->body_case == WB__TO_AGENT__BODY__NOT_SET || !message_is_good(&m->base)) {
                codec_free_to_agent(m);
                return CODEC_E_MALFORMED;
        }
        *ret = m;
        return 0;
}

int codec_unpack_from_agent(const uint8_t *payload, size_t n, Wb__FromAgent **ret)
{
        Wb__FromAgent *m = (Wb__FromAgent *)unpack(&wb__from_agent__descriptor, payload, n);

        if (!m)
                return CODEC_E_MALFORMED;
        if (m->body_case == WB__FROM_AGENT__BODY__NOT_SET || !message_is_good(&m->base)) {
                codec_free_from_agent(m);
                return CODEC_E_MALFORMED;
        }
        *ret = m;
        return 0;
}

int codec_unpack_service_request(const uint8_t *payload, size_t n, Wb__ServiceRequest **ret)
{
        Wb__ServiceRequest *m = (Wb__ServiceRequest *)unpack(&wb__service_request__descriptor, payload, n);

        if (!m)
                return CODEC_E_MALFORMED;
        if (m->body_case == WB__SERVICE_REQUEST__BODY__NOT_SET || !message_is_good(&m->base)) {
                codec_free_service_request(m);
                return CODEC_E_MALFORMED;
        }
        *ret = m;
        return 0;
}

int codec_unpack_service_answer(const uint8_t *payload, size_t n, Wb__ServiceAnswer **ret)
{
        Wb__ServiceAnswer *m = (Wb__ServiceAnswer *)unpack(&wb__service_answer__descriptor, payload, n);

        if (!m)
                return CODEC_E_MALFORMED;
        if (m->body_case == WB__SERVICE_ANSWER__BODY__NOT_SET || !message_is_good(&m->base)) {
                codec_free_service_answer(m);
                return CODEC_E_MALFORMED;
        }
        *ret = m;
        return 0;
}

static void wipe(ProtobufCBinaryData *data)
{
        if (data->len)
                explicit_bzero(data->data, data->len);
}

void codec_free_to_agent(Wb__ToAgent *m)
{
        if (!m)
                return;
        if (m->body_case == WB__TO_AGENT__BODY_ACTIVATE && m->activate) {
                wipe(&m->activate->seed);
                for (size_t i = 0; i < m->activate->n_secrets; i++)
                        wipe(&m->activate->secrets[i]->value);
        }
        if (m->body_case == WB__TO_AGENT__BODY_SECRET_PUT && m->secret_put && m->secret_put->secret)
                wipe(&m->secret_put->secret->value);
        wb__to_agent__free_unpacked(m, NULL);
}

void codec_free_from_agent(Wb__FromAgent *m)
{
        if (m)
                wb__from_agent__free_unpacked(m, NULL);
}

void codec_free_service_request(Wb__ServiceRequest *m)
{
        if (m)
                wb__service_request__free_unpacked(m, NULL);
}

void codec_free_service_answer(Wb__ServiceAnswer *m)
{
        if (m)
                wb__service_answer__free_unpacked(m, NULL);
}

static int pack(const ProtobufCMessage *m, uint8_t **ret_frame, size_t *ret_n)
{
        size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *frame;

        if (n > WB_FRAME_MAX_BYTES)
                return -EMSGSIZE;
        frame = malloc(FRAME_HEADER_BYTES + n);
        if (!frame)
                return -ENOMEM;
        frame_header(n, frame);
        protobuf_c_message_pack(m, frame + FRAME_HEADER_BYTES);
        *ret_frame = frame;
        *ret_n = FRAME_HEADER_BYTES + n;
        return 0;
}

int codec_pack_to_agent(const Wb__ToAgent *m, uint8_t **ret_frame, size_t *ret_n)
{
        return pack(&m->base, ret_frame, ret_n);
}

int codec_pack_from_agent(const Wb__FromAgent *m, uint8_t **ret_frame, size_t *ret_n)
{
        return pack(&m->base, ret_frame, ret_n);
}

int codec_pack_service_request(const Wb__ServiceRequest *m, uint8_t **ret_frame, size_t *ret_n)
{
        return pack(&m->base, ret_frame, ret_n);
}

int codec_pack_service_answer(const Wb__ServiceAnswer *m, uint8_t **ret_frame, size_t *ret_n)
{
        return pack(&m->base, ret_frame, ret_n);
}
