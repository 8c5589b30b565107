/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an audit log: something is found, or every line follows from the one before, by a calculation that
 * shares nothing with the check but SHA-256; and then no byte can be changed without its being found.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/wbctl/audit_check.h"

static void on_finding(void *userdata, const struct finding *f)
{
        uint64_t *n = userdata;

        MUST(f->kind < FINDING_MAX_ && f->file && *f->text);
        for (const char *p = f->text; *p; p++)
                MUST(*p >= 0x20 && *p <= 0x7e);
        ++*n;
}

/* Hands the lines as the reader does; each in memory of its own, so that reading past its end is seen. */
static void hand_lines(struct audit_check *c, const char *text, size_t n)
{
        uint64_t line = 0;

        while (n) {
                const char *end = memchr(text, '\n', n);
                size_t line_n = end ? (size_t)(end - text) : n;
                char *copy = malloc(line_n + 1);

                memcpy(copy, text, line_n);
                copy[line_n] = '\0';
                audit_check_line(c, &(struct audit_text){.kind = end ? AUDIT_TEXT_LINE : AUDIT_TEXT_TORN,
                                            .file = "audit.log",
                                            .line = ++line,
                                            .text = copy,
                                            .n = line_n});
                free(copy);
                text += line_n + (end != NULL);
                n -= line_n + (end != NULL);
        }
}

static struct audit_summary check(const char *text, size_t n)
{
        static const struct audit_check_options none;
        struct audit_summary summary;
        struct audit_check *c;
        uint64_t findings_n = 0;

        MUST(audit_check_new(&none, on_finding, &findings_n, &c) == 0);
        hand_lines(c, text, n);
        audit_check_end(c);
        summary = *audit_check_summary(c);
        MUST(summary.findings_n == findings_n);
        audit_check_free(c);
        return summary;
}

/* The hash of each line but its last 75 bytes is in these. */
static void check_chain(const char *text, size_t n, uint64_t records_n)
{
        char before[64], *bytes = malloc(n + 65), digits[SHA256_TEXT_BYTES];
        uint8_t digest[SHA256_BYTES];
        uint64_t lines = 0;

        memset(before, '0', sizeof(before));
        for (const char *end; n; n -= (size_t)(end + 1 - text), text = end + 1, lines++) {
                size_t line_n, body_n;

                end = memchr(text, '\n', n);
                MUST(end);
                line_n = (size_t)(end - text);
                MUST(line_n > 75);
                body_n = line_n - 75;
                memcpy(bytes, before, 64);
                bytes[64] = '\n';
                memcpy(bytes + 65, text, body_n);
                MUST(sha256_bytes(bytes, 65 + body_n, digest) == 0);
                sha256_text(digest, digits);
                MUST(memcmp(text + body_n + 9, digits, 64) == 0);
                memcpy(before, digits, 64);
        }
        MUST(lines == records_n);
        free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct audit_summary s;
        char *text;
        size_t at;

        if (n < 2)
                return 0;
        /* The first two bytes choose the one that is changed. */
        at = (size_t)data[0] << 8 | data[1];
        data += 2;
        n -= 2;
        s = check((const char *)data, n);
        if (s.findings_n)
                return 0;
        check_chain((const char *)data, n, s.records_n);
        text = malloc(n);
        memcpy(text, data, n);
        text[at % n] = (char)(text[at % n] ^ (1 + at % 255));
        MUST(check(text, n).findings_n > 0);
        free(text);
        return 0;
}
