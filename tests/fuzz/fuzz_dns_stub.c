/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A workload's DNS message: what is understood of it is a copy of its bytes, its answer is a response with the same
 * question, fits where it must, and an answer is never taken for a question.
 */
#include <string.h>

#include "guest/dns_message.h"
#include "guest/fake_pool.h"
#include "proto/wire/hostname.h"
#include "tests/fuzz/fuzz.h"

static void check_reply(const struct dns_query *q, const struct dns_reply *reply, size_t room)
{
        uint8_t bytes[DNS_REPLY_MAX_BYTES];
        struct dns_query again;
        enum dns_rcode rcode = DNS_NOERROR;
        size_t n = dns_build(q, reply, bytes, room);

        MUST(n >= 12 && n <= room);
        MUST(bytes[0] == q->id >> 8 && bytes[1] == (q->id & 0xff));
        MUST(dns_parse(bytes, n, &again, &rcode) == DNS_E_DROP);
        if (!q->has_question)
                return;
        MUST(memcmp(bytes + 12, q->name, q->name_n) == 0);
        /* Made a question again, and without records, it is the one that was asked. */
        bytes[2] &= 0x7d;
        if (bytes[7])
                return;
        rcode = DNS_NOERROR;
        MUST(dns_parse(bytes, n, &again, &rcode) != DNS_E_DROP);
        if (q->opcode == 0) {
                MUST(again.has_question && again.name_n == q->name_n && memcmp(again.name, q->name, q->name_n) == 0);
                MUST(again.has_edns == q->has_edns && again.dnssec_ok == q->dnssec_ok);
        }
}

static void check_text(const struct dns_query *q)
{
        char text[DNS_TEXT_BYTES];
        struct hostname host;
        uint32_t address;

        MUST(q->name_n >= 1 && q->name[q->name_n - 1] == 0);
        (void)dns_query_reverse_ipv4(q, &address);
        if (!dns_query_text(q, text))
                return;
        MUST(strlen(text) + 2 == q->name_n || (!text[0] && q->name_n == 1));
        if (text[0] && hostname_parse(text, strlen(text), &host) == 0)
                MUST(host.kind != HOST_NAME || host.length == strlen(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct dns_query q;
        enum dns_rcode rcode = DNS_NOERROR;
        struct dns_reply replies[] = {
                {.rcode = DNS_NXDOMAIN,
                        .has_error = true,
                        .error = DNS_EDE_BLOCKED,
                        .error_text = "no_rule",
                        .more_text = "why"},
                {.has_address = true, .address = FAKE_POOL_BASE + 7, .ttl_s = FAKE_POOL_TTL_S},
                {.ptr = "a.example.org", .ttl_s = FAKE_POOL_TTL_S},
        };
        int r = dns_parse(data, n, &q, &rcode);

        MUST(r == 0 || r == DNS_E_DROP || r == DNS_E_RCODE);
        if (r == DNS_E_DROP) {
                MUST(n < 12 || (data[2] & 0x80));
                return 0;
        }
        MUST((r == 0) == (rcode == DNS_NOERROR));
        MUST(r != 0 || q.has_question);
        if (q.has_question)
                check_text(&q);
        for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
                if (r == DNS_E_RCODE)
                        replies[i] = (struct dns_reply){.rcode = rcode};
                check_reply(&q, &replies[i], DNS_PLAIN_MAX_BYTES);
                check_reply(&q, &replies[i], dns_query_udp_room(&q));
        }
        return 0;
}
