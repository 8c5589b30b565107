/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tunnel's first bytes as a ClientHello. Properties: the verdict and what it says do not depend on the pieces;
 * nothing behind the raw bytes that it names matters; cut into records of one byte, or joined in one, the message says
 * the same.
 */
#include <string.h>

#include "broker/client_hello.h"
#include "tests/fuzz/fuzz.h"

static int read_hello(struct client_hello *h, const uint8_t *raw, size_t n, size_t piece)
{
        int r = CLIENT_HELLO_E_MORE;

        memset(h, 0, sizeof(*h));
        for (size_t at = 0; at < n && r == CLIENT_HELLO_E_MORE;) {
                at += min_size(piece, n - at);
                r = client_hello_parse(h, raw, at);
        }
        return r;
}

static void check_same(const struct client_hello *a, const struct client_hello *b)
{
        MUST(a->sni == b->sni && a->ech == b->ech && a->legacy_version == b->legacy_version);
        MUST(a->name_n == b->name_n && !memcmp(a->name, b->name, sizeof(a->name)));
}

/* The records' payloads up to raw_bytes, each byte in a record of its own. */
static size_t cut_to_bytes(const uint8_t *raw, size_t raw_n, uint8_t *ret_raw)
{
        size_t n = 0;

        for (size_t at = 0; at < raw_n;) {
                size_t record = (size_t)raw[at + 3] << 8 | raw[at + 4];

                for (size_t i = 0; i < record; i++, n += 6)
                        memcpy(ret_raw + n, (uint8_t[]){0x16, 3, 1, 0, 1, raw[at + 5 + i]}, 6);
                at += 5 + record;
        }
        return n;
}

static void check_cut(const struct client_hello *h, const uint8_t *raw)
{
        uint8_t *bytes = malloc((size_t)h->raw_bytes * 6);
        size_t n = cut_to_bytes(raw, h->raw_bytes, bytes);
        struct client_hello cut;
        int r = read_hello(&cut, bytes, n, SIZE_MAX);

        if (n > CLIENT_HELLO_RAW_MAX_BYTES) {
                MUST(r == CLIENT_HELLO_E_MALFORMED);
        } else {
                MUST(!r && cut.raw_bytes == n);
                check_same(h, &cut);
        }
        free(bytes);
}

static void check_joined(const struct client_hello *h, const uint8_t *raw)
{
        uint8_t *one = malloc(h->raw_bytes);
        size_t n = client_hello_join(h, raw, one);
        struct client_hello again;

        MUST(n <= h->raw_bytes);
        MUST(!read_hello(&again, one, n, SIZE_MAX) && again.raw_bytes == n);
        check_same(h, &again);
        free(one);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static const size_t pieces[] = {1, 11};
        struct client_hello whole, pieced, alone;
        struct hostname target;
        int r = read_hello(&whole, data, n, SIZE_MAX);

        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
                MUST(read_hello(&pieced, data, n, pieces[i]) == r);
                if (r == 0) {
                        check_same(&whole, &pieced);
                        MUST(whole.raw_bytes == pieced.raw_bytes);
                }
        }
        if (r)
                return 0;

        MUST(whole.raw_bytes <= n && whole.raw_bytes <= CLIENT_HELLO_RAW_MAX_BYTES);
        MUST(!read_hello(&alone, data, whole.raw_bytes, SIZE_MAX));
        check_same(&whole, &alone);
        check_cut(&whole, data);
        check_joined(&whole, data);
        /* Allowed for a name only if SNI is that name. */
        if (!hostname_parse("ok.example.org", strlen("ok.example.org"), &target) &&
                !client_hello_judge(&whole, &target))
                MUST(whole.sni == CLIENT_HELLO_SNI_ONE && whole.name_n == target.length);
        return 0;
}
