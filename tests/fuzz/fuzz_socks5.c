/* SPDX-License-Identifier: Apache-2.0 */
/* A SOCKS5 client's bytes: the events are the same whatever the pieces, and a request names a canonical host. */
#include <string.h>

#include "broker/socks5.h"
#include "tests/fuzz/fuzz.h"

struct outcome {
        enum socks5_event event;
        size_t method_at; /* behind which byte the method was told; 0: it was not */
        size_t taken;
};

static struct outcome read_all(struct socks5 *s, const uint8_t *data, size_t n, size_t piece)
{
        struct outcome o = {.event = SOCKS5_MORE};

        memset(s, 0, sizeof(*s));
        while (o.taken < n && (o.event == SOCKS5_MORE || o.event == SOCKS5_METHOD)) {
                size_t k = min_size(piece, n - o.taken), taken;

                o.event = socks5_feed(s, data + o.taken, k, &taken);
                MUST(taken && taken <= k);
                o.taken += taken;
                if (o.event == SOCKS5_METHOD)
                        o.method_at = o.taken;
        }
        /* Whether the bytes ended with the greeting or before it is no difference of the pieces. */
        return o;
}

static void check_request(const struct socks5 *s)
{
        struct hostname again;
        char text[HOSTNAME_MAX_BYTES + 3];
        int n = snprintf(text, sizeof(text), s->host.kind == HOST_IPV6 ? "[%s]" : "%s", s->host.text);

        MUST(s->port);
        MUST(!hostname_parse(text, (size_t)n, &again));
        MUST(again.kind == s->host.kind && !strcmp(again.text, s->host.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct socks5 whole, bytes;
        struct outcome a = read_all(&whole, data, n, SIZE_MAX), b = read_all(&bytes, data, n, 1);

        MUST(a.event == b.event && a.taken == b.taken && a.method_at == b.method_at);
        MUST(!memcmp(&whole, &bytes, sizeof(whole)));
        if (a.event == SOCKS5_REQUEST)
                check_request(&whole);
        if (a.event == SOCKS5_REFUSED)
                MUST((whole.reason == REASON_MALFORMED_REQUEST) == (whole.reply == SOCKS5_REPLY_FAILURE));
        return 0;
}
