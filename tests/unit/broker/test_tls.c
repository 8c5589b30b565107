/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/crypto.h"
#include "broker/leaf.h"
#include "broker/peer.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

/* Both ends of a socketpair, each with its role. The server has the certificate of `server`; the client wants that of
 * `wanted`. */
struct world {
        struct ca *ca, *other_ca;
        struct leaf_mint mint;
        struct leaf *leaf;
        mbedtls_x509_crt trusted;
        mbedtls_ssl_config server_config, client_config;
        struct budget budget;
        int fds[2];
        struct tls *server, *client;
};

static struct hostname host_of(const char *text)
{
        struct hostname host;

        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &host), 0);
        return host;
}

static struct ca *make_ca(void)
{
        struct ca *ca = NULL;
        char *text;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(ca_make(&text, &n), 0);
        CU_ASSERT_EQUAL_FATAL(ca_load(text, n, &ca), 0);
        free(text);
        return ca;
}

static void world_open(struct world *w, const char *server, const char *wanted, bool trusts, int64_t made_s)
{
        struct hostname server_host = host_of(server), wanted_host = host_of(wanted);
        const char *pem;

        *w = (struct world){.budget.most_bytes = 1 << 20};
        w->ca = make_ca();
        w->other_ca = make_ca();
        pem = ca_certificate(trusts ? w->ca : w->other_ca);
        mbedtls_x509_crt_init(&w->trusted);
        mbedtls_ssl_config_init(&w->server_config);
        mbedtls_ssl_config_init(&w->client_config);
        CU_ASSERT_EQUAL_FATAL(mbedtls_x509_crt_parse(&w->trusted, (const unsigned char *)pem, strlen(pem) + 1), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_mint_init(&w->mint, w->ca), 0);
        CU_ASSERT_EQUAL_FATAL(leaf_get(&w->mint, &server_host, made_s, &w->leaf), 0);
        CU_ASSERT_EQUAL_FATAL(tls_configure_server(&w->server_config, &w->leaf->certificate, &w->mint.key), 0);
        CU_ASSERT_EQUAL_FATAL(tls_configure_client(&w->client_config, &w->trusted), 0);
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, w->fds), 0);
        CU_ASSERT_EQUAL_FATAL(tls_new(&w->server_config, w->fds[0], &w->budget, NULL, &w->server), 0);
        CU_ASSERT_EQUAL_FATAL(tls_new(&w->client_config, w->fds[1], &w->budget, &wanted_host, &w->client), 0);
}

static void world_close(struct world *w)
{
        tls_free(w->server);
        tls_free(w->client);
        CU_ASSERT_EQUAL(w->budget.used_bytes, 0);
        (void)close(w->fds[0]);
        (void)close(w->fds[1]);
        mbedtls_ssl_config_free(&w->server_config);
        mbedtls_ssl_config_free(&w->client_config);
        mbedtls_x509_crt_free(&w->trusted);
        leaf_unref(w->leaf);
        leaf_mint_done(&w->mint);
        ca_unref(w->ca);
        ca_unref(w->other_ca);
}

static int64_t now_s(void)
{
        return (int64_t)(clock_realtime_ns() / NSEC_PER_SEC);
}

/* Until both have a verdict. */
static void shake(struct world *w, int *ret_server, int *ret_client)
{
        *ret_server = *ret_client = TLS_E_WAIT;
        for (int i = 0; i < 100 && (*ret_server == TLS_E_WAIT || *ret_client == TLS_E_WAIT); i++) {
                if (*ret_client == TLS_E_WAIT)
                        *ret_client = tls_handshake(w->client);
                if (*ret_server == TLS_E_WAIT)
                        *ret_server = tls_handshake(w->server);
        }
}

static void test_both_ways(void)
{
        uint8_t bytes[64];
        struct world w;
        int server, client;

        world_open(&w, "www.example.org", "www.example.org", true, now_s());
        CU_ASSERT_EQUAL(w.budget.used_bytes, 2 * TLS_CHARGED_BYTES);
        CU_ASSERT_EQUAL(tls_write(w.client, (const uint8_t *)"x", 1), -EAGAIN); /* not before it is safe */
        shake(&w, &server, &client);
        CU_ASSERT_EQUAL(server, 0);
        CU_ASSERT_EQUAL_FATAL(client, 0);
        CU_ASSERT_EQUAL(tls_read(w.server, bytes, sizeof(bytes)), -EAGAIN);
        CU_ASSERT_EQUAL(tls_write(w.client, (const uint8_t *)"hello", 5), 5);
        CU_ASSERT_EQUAL(tls_read(w.server, bytes, 2), 2);
        CU_ASSERT(tls_has_pending(w.server)); /* of which the socket knows nothing */
        CU_ASSERT_EQUAL(tls_read(w.server, bytes + 2, sizeof(bytes) - 2), 3);
        CU_ASSERT_EQUAL(memcmp(bytes, "hello", 5), 0);
        CU_ASSERT_FALSE(tls_has_pending(w.server));
        CU_ASSERT_EQUAL(tls_write(w.server, (const uint8_t *)"back", 4), 4);
        CU_ASSERT_EQUAL(tls_read(w.client, bytes, sizeof(bytes)), 4);

        CU_ASSERT(tls_finish(w.client));
        CU_ASSERT_EQUAL(tls_read(w.server, bytes, sizeof(bytes)), 0);
        CU_ASSERT_EQUAL(tls_write(w.client, (const uint8_t *)"x", 1), -EPIPE);
        (void)shutdown(w.fds[0], SHUT_WR); /* without a close_notify: what came may not be all */
        CU_ASSERT_EQUAL(tls_read(w.client, bytes, sizeof(bytes)), -ECONNRESET);
        world_close(&w);
}

/* More than the socket takes: the record that is under way is not begun again, whatever is added behind it. */
static void test_backpressure(void)
{
        size_t sent = 0, got = 0, total = 1 << 20;
        uint8_t *from = malloc(total), *to = malloc(total);
        bool waited = false;
        struct world w;
        int server, client;

        world_open(&w, "www.example.org", "www.example.org", true, now_s());
        shake(&w, &server, &client);
        CU_ASSERT_EQUAL_FATAL(client, 0);
        for (size_t i = 0; i < total; i++)
                from[i] = (uint8_t)(i * 131 + (i >> 8));
        while (got < total) {
                ssize_t n = -EAGAIN;

                for (size_t offer = 1000; sent < total; offer += 7000) {
                        n = tls_write(w.server, from + sent, offer < total - sent ? offer : total - sent);
                        if (n < 0)
                                break;
                        sent += (size_t)n;
                }
                if (sent < total) {
                        CU_ASSERT_EQUAL_FATAL(n, -EAGAIN);
                        CU_ASSERT(tls_has_unsent(w.server));
                        waited = true;
                }
                while ((n = tls_read(w.client, to + got, total - got)) > 0)
                        got += (size_t)n;
                CU_ASSERT_FATAL(n == -EAGAIN || got == total);
        }
        CU_ASSERT(waited);
        CU_ASSERT_EQUAL(memcmp(from, to, total), 0);
        CU_ASSERT_FALSE(tls_has_unsent(w.server));
        free(from);
        free(to);
        world_close(&w);
}

static const struct refusal_case {
        const char *server, *wanted;
        bool trusts;
        int64_t age_s; /* of the server's certificate */
        const char *fault;
} refusals[] = {
        {"www.example.org", "www.example.org", true, 0, NULL},
        {"www.example.org", "other.example.org", true, 0, "another name"},
        {"www.example.org", "example.org", true, 0, "another name"},
        {"www.example.org", "www.example.org", false, 0, "nobody"},
        {"www.example.org", "www.example.org", true, 200000, "expired"},
        {"www.example.org", "www.example.org", true, -20000, "not valid yet"},
        {"203.0.114.7", "203.0.114.7", true, 0, NULL},
        {"203.0.114.7", "203.0.114.8", true, 0, "another name"},
        {"www.example.org", "203.0.114.8", true, 0, "another name"},
        {"203.0.114.7", "www.example.org", true, 0, "another name"},
        {"[2001:4860::1]", "[2001:4860::1]", true, 0, NULL},
        {"[2001:4860::1]", "[2001:4860::2]", true, 0, "another name"},
        {"203.0.114.7", "203.0.114.7", false, 0, "nobody"},
};

static void test_whose_certificate(void)
{
        for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
                const struct refusal_case *c = &refusals[i];
                struct world w;
                int server, client;

                world_open(&w, c->server, c->wanted, c->trusts, now_s() - c->age_s);
                shake(&w, &server, &client);
                CU_ASSERT_EQUAL(client, c->fault ? TLS_E_FAILED : 0);
                CU_ASSERT_EQUAL(server, c->fault ? TLS_E_FAILED : 0);
                if (c->fault && !strstr(tls_fault(w.client), c->fault)) {
                        printf("%s for %s: %s\n", c->server, c->wanted, tls_fault(w.client));
                        CU_FAIL("another fault");
                }
                world_close(&w);
        }
}

/* What was read of the socket before is not lost. */
static void test_given_bytes(void)
{
        struct buffer early;
        uint8_t bytes[512];
        struct world w;
        ssize_t n;
        int server, client;

        world_open(&w, "www.example.org", "www.example.org", true, now_s());
        buffer_init(&early, &w.budget);
        CU_ASSERT_EQUAL(tls_handshake(w.client), TLS_E_WAIT);
        n = read(w.fds[0], bytes, sizeof(bytes));
        CU_ASSERT_FATAL(n > 0);
        CU_ASSERT_EQUAL(buffer_append(&early, bytes, (size_t)n), 0);
        CU_ASSERT_EQUAL(tls_give(w.server, &early), 0);
        shake(&w, &server, &client);
        CU_ASSERT_EQUAL(server, 0);
        CU_ASSERT_EQUAL(client, 0);
        world_close(&w);
}

/* Whole records of `from`, those of the handshake in clear text cut to `most` bytes each, in one write. The bytes of
 * `from` used. */
static size_t cut_records(const uint8_t *from, size_t n, size_t most, bool *clear, int to)
{
        static uint8_t cut[6 * 16384];
        size_t at = 0, cut_n = 0;

        while (n - at >= 5) {
                size_t record = (size_t)from[at + 3] << 8 | from[at + 4];

                if (n - at < 5 + record)
                        break;
                *clear = *clear && from[at] == 22;
                for (size_t i = 0; i < record; i += *clear ? most : record) {
                        size_t part = *clear && record - i > most ? most : record - i;
                        const uint8_t header[5] = {
                                from[at], from[at + 1], from[at + 2], (uint8_t)(part >> 8), (uint8_t)part};

                        memcpy(cut + cut_n, header, 5);
                        memcpy(cut + cut_n + 5, from + at + 5 + i, part);
                        cut_n += 5 + part;
                }
                at += 5 + record;
        }
        CU_ASSERT_EQUAL(write(to, cut, cut_n), (ssize_t)cut_n);
        return at;
}

/* A server whose handshake messages do not fit its records. */
static void test_messages_that_are_cut(void)
{
        static uint8_t bytes[65536];

        for (size_t most = 1; most < 256; most = most * 3 + 2) {
                struct world w;
                int between[2], server = TLS_E_WAIT, client = TLS_E_WAIT;
                struct hostname host = host_of("www.example.org");
                bool clear = true;
                size_t held = 0;

                world_open(&w, "www.example.org", "www.example.org", true, now_s());
                CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, between), 0);
                tls_free(w.client);
                CU_ASSERT_EQUAL_FATAL(tls_new(&w.client_config, between[1], &w.budget, &host, &w.client), 0);
                for (int i = 0; i < 100 && (server == TLS_E_WAIT || client == TLS_E_WAIT); i++) {
                        ssize_t n;

                        if (client == TLS_E_WAIT)
                                client = tls_handshake(w.client);
                        n = read(between[0], bytes + held, sizeof(bytes) - held);
                        if (n > 0)
                                CU_ASSERT_EQUAL(write(w.fds[1], bytes + held, (size_t)n), n);
                        if (server == TLS_E_WAIT)
                                server = tls_handshake(w.server);
                        n = read(w.fds[1], bytes + held, sizeof(bytes) - held);
                        if (n > 0)
                                held += (size_t)n;
                        n = (ssize_t)cut_records(bytes, held, most, &clear, between[0]);
                        memmove(bytes, bytes + n, held - (size_t)n);
                        held -= (size_t)n;
                }
                CU_ASSERT_EQUAL(server, 0);
                CU_ASSERT_EQUAL(client, 0);
                (void)close(between[0]);
                (void)close(between[1]);
                world_close(&w);
        }
}

static void test_no_tls_at_all(void)
{
        struct world w;
        uint8_t bytes[16];

        world_open(&w, "www.example.org", "www.example.org", true, now_s());
        CU_ASSERT_EQUAL(write(w.fds[1], "GET / HTTP/1.1\r\n\r\n", 18), 18);
        CU_ASSERT_EQUAL(tls_handshake(w.server), TLS_E_FAILED);
        CU_ASSERT_EQUAL(tls_handshake(w.server), TLS_E_FAILED);
        CU_ASSERT_EQUAL(write(w.fds[1], "more", 4), 4);
        CU_ASSERT_EQUAL(tls_read(w.server, bytes, sizeof(bytes)), -EAGAIN); /* dropped */
        CU_ASSERT_EQUAL(tls_write(w.server, bytes, 1), -EPIPE);
        CU_ASSERT(tls_finish(w.server));
        (void)shutdown(w.fds[1], SHUT_WR);
        CU_ASSERT_EQUAL(tls_read(w.server, bytes, sizeof(bytes)), 0);
        world_close(&w);
}

static void test_budget(void)
{
        struct world w;
        struct tls *more = NULL;

        world_open(&w, "www.example.org", "www.example.org", true, now_s());
        w.budget.most_bytes = 3 * TLS_CHARGED_BYTES - 1;
        CU_ASSERT_EQUAL(tls_new(&w.server_config, w.fds[0], &w.budget, NULL, &more), -ENOBUFS);
        CU_ASSERT_PTR_NULL(more);
        world_close(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"both ways", test_both_ways},
                {"backpressure", test_backpressure},
                {"whose certificate", test_whose_certificate},
                {"bytes that were given", test_given_bytes},
                {"messages that are cut", test_messages_that_are_cut},
                {"no TLS at all", test_no_tls_at_all},
                {"the budget", test_budget},
                CU_TEST_INFO_NULL,
        };

        (void)crypto_init();
        return suite_run("tls", tests);
}
