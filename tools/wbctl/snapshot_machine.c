/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_machine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/wbctl/run_machine.h"
#include "tools/wbctl/strict_text.h"

#define HEAD         "wb-snapshot 1\n"
#define CHECK        "check "
#define DIGEST_CHARS (SHA256_TEXT_BYTES - 1)
#define CHECK_BYTES  (sizeof(CHECK) - 1 + DIGEST_CHARS + 1)

enum field_kind {
        FIELD_TEXT,
        FIELD_ACCEL,
        FIELD_CPUS,
        FIELD_MEMORY,
        FIELD_DIGEST,
        FIELD_STATE,
};

/* In the order of the lines. */
static const struct field {
        const char *name; /* with the space behind it */
        enum field_kind kind;
        size_t offset;
} fields[] = {
        {"qemu ", FIELD_TEXT, offsetof(struct snapshot_machine, qemu)},
        {"machine ", FIELD_TEXT, offsetof(struct snapshot_machine, machine)},
        {"accel ", FIELD_ACCEL, offsetof(struct snapshot_machine, kvm)},
        {"cpu ", FIELD_TEXT, offsetof(struct snapshot_machine, cpu)},
        {"processor ", FIELD_TEXT, offsetof(struct snapshot_machine, processor)},
        {"cpus ", FIELD_CPUS, offsetof(struct snapshot_machine, cpus)},
        {"memory ", FIELD_MEMORY, offsetof(struct snapshot_machine, memory_bytes)},
        {"kernel ", FIELD_DIGEST, offsetof(struct snapshot_machine, kernel)},
        {"initrd ", FIELD_DIGEST, offsetof(struct snapshot_machine, initrd)},
        {"cmdline ", FIELD_DIGEST, offsetof(struct snapshot_machine, cmdline)},
        {"state ", FIELD_STATE, 0},
};

#define FIELDS_N    (sizeof(fields) / sizeof(fields[0]))
#define FIELD_BYTES (sizeof("processor ") + SNAPSHOT_MACHINE_TEXT_BYTES)

static_assert(sizeof(HEAD) + FIELDS_N * FIELD_BYTES + CHECK_BYTES < SNAPSHOT_MACHINE_MAX_BYTES, "the longest has room");
static_assert(MACHINE_PROCESSOR_BYTES <= SNAPSHOT_MACHINE_TEXT_BYTES, "and so has a processor's name");

static bool is_printable(char c)
{
        return c >= ' ' && c <= '~';
}

bool snapshot_machine_is_text(const char *text)
{
        size_t n = 0;

        while (is_printable(text[n]))
                n++;
        return n > 0 && n < SNAPSHOT_MACHINE_TEXT_BYTES && text[n] == '\0' && text[0] != ' ' && text[n - 1] != ' ';
}

/* ---- from text */

static bool take_text(struct strict_text *t, char ret[SNAPSHOT_MACHINE_TEXT_BYTES])
{
        return strict_text_take_chars(t, is_printable, ret, SNAPSHOT_MACHINE_TEXT_BYTES) &&
               snapshot_machine_is_text(ret);
}

static bool take_accel(struct strict_text *t, bool *ret)
{
        *ret = strict_text_take(t, "kvm");
        return *ret || strict_text_take(t, "tcg");
}

static bool take_value(struct strict_text *t, const struct field *field, struct snapshot_machine *m)
{
        void *to = (char *)m + field->offset;

        switch (field->kind) {
        case FIELD_TEXT: return take_text(t, to);
        case FIELD_ACCEL: return take_accel(t, to);
        case FIELD_CPUS: return strict_text_take_number(t, 1, MACHINE_CPUS_MAX, to);
        case FIELD_MEMORY:
                return strict_text_take_number(t, MACHINE_MEMORY_MIN_BYTES, SNAPSHOT_MEMORY_MAX_BYTES, to) &&
                       m->memory_bytes % MACHINE_MEMORY_UNIT_BYTES == 0;
        case FIELD_DIGEST: return strict_text_take_digest(t, to);
        case FIELD_STATE:
                return strict_text_take_number(t, 1, SNAPSHOT_STATE_MAX_BYTES, &m->state_bytes) &&
                       strict_text_take(t, " ") && strict_text_take_digest(t, m->state);
        }
        return false;
}

/* NULL, or what is wrong. */
static const char *take_field(struct strict_text *t, const struct field *field, struct snapshot_machine *m)
{
        if (!strict_text_take(t, field->name))
                return "is not the one that belongs there";
        if (!take_value(t, field, m))
                return "has a value that cannot be";
        return strict_text_take(t, "\n") ? NULL : "has more than belongs there";
}

static const char *take_check(struct strict_text *t, const uint8_t above[SHA256_BYTES])
{
        uint8_t digest[SHA256_BYTES];

        if (!strict_text_take(t, CHECK) || !strict_text_take_digest(t, digest) || !strict_text_take(t, "\n") ||
                strict_text_left(t) > 0)
                return "is not the check of the lines above, or not the last";
        return memcmp(digest, above, SHA256_BYTES) == 0 ? NULL : "says that the lines above have been altered";
}

int snapshot_machine_parse(
        const char *text, size_t n, struct snapshot_machine *ret, struct snapshot_machine_error *ret_error)
{
        struct snapshot_machine m = {0};
        struct strict_text t = {.at = text, .end = text + n};
        size_t line = 1;
        const char *reason = NULL;

        if (n > SNAPSHOT_MACHINE_MAX_BYTES || !strict_text_take(&t, HEAD))
                reason = "is not the beginning of a snapshot's machine, of version 1";
        for (size_t i = 0; !reason && i < FIELDS_N; i++) {
                line++;
                reason = take_field(&t, &fields[i], &m);
        }
        if (!reason) {
                uint8_t above[SHA256_BYTES];
                int r = sha256_bytes(text, (size_t)(t.at - text), above);

                if (r < 0)
                        return r;
                line++;
                reason = take_check(&t, above);
        }
        if (reason) {
                *ret_error = (struct snapshot_machine_error){.line = line, .reason = reason};
                return SNAPSHOT_MACHINE_E_INVALID;
        }
        *ret = m;
        return 0;
}

/* ---- to text */

static size_t put_value(const struct field *field, const struct snapshot_machine *m, char *to, size_t room)
{
        const void *from = (const char *)m + field->offset;
        char digest[SHA256_TEXT_BYTES];
        int n = 0;

        switch (field->kind) {
        case FIELD_TEXT: n = snprintf(to, room, "%s%s\n", field->name, (const char *)from); break;
        case FIELD_ACCEL: n = snprintf(to, room, "%s%s\n", field->name, m->kvm ? "kvm" : "tcg"); break;
        case FIELD_CPUS:
        case FIELD_MEMORY: n = snprintf(to, room, "%s%" PRIu64 "\n", field->name, *(const uint64_t *)from); break;
        case FIELD_DIGEST:
                sha256_text(from, digest);
                n = snprintf(to, room, "%s%s\n", field->name, digest);
                break;
        case FIELD_STATE:
                sha256_text(m->state, digest);
                n = snprintf(to, room, "%s%" PRIu64 " %s\n", field->name, m->state_bytes, digest);
                break;
        }
        return (size_t)n;
}

int snapshot_machine_format(const struct snapshot_machine *m, char ret_text[SNAPSHOT_MACHINE_MAX_BYTES], size_t *ret_n)
{
        uint8_t above[SHA256_BYTES];
        char digest[SHA256_TEXT_BYTES];
        size_t n = (size_t)snprintf(ret_text, SNAPSHOT_MACHINE_MAX_BYTES, HEAD);
        int r;

        for (size_t i = 0; i < FIELDS_N; i++)
                n += put_value(&fields[i], m, ret_text + n, SNAPSHOT_MACHINE_MAX_BYTES - n);
        r = sha256_bytes(ret_text, n, above);
        if (r < 0)
                return r;
        sha256_text(above, digest);
        n += (size_t)snprintf(ret_text + n, SNAPSHOT_MACHINE_MAX_BYTES - n, CHECK "%s\n", digest);
        assert(n < SNAPSHOT_MACHINE_MAX_BYTES);
        *ret_n = n;
        return 0;
}
