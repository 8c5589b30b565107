/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/version.h>

#include "broker/crypto.h"
#include "broker/handshake_join.h"

/* What one call may read of the socket: a peer that sends alerts or empty records without end does not keep the worker
 * from the others. More than a record, so that each call can get somewhere. */
#define TURN_BYTES (64u * 1024u)

#define SAN_IP_ADDRESS 0x87u /* RFC 5280 4.2.1.6: the tag of a GeneralName */

enum tls_state {
        TLS_HANDSHAKING,
        TLS_OPEN,
        TLS_FINISHED, /* our close_notify is out; the other side may still send */
        TLS_FAILED,
};

struct tls {
        mbedtls_ssl_context ssl;
        enum tls_state state;
        int fd;
        struct budget *budget;
        struct buffer early; /* tls_give(), or what join made */
        struct handshake_join join;
        bool joins;         /* until a server's handshake is encrypted */
        size_t turn_bytes;  /* that this call may still read */
        size_t retry_bytes; /* of a record that is written and not all sent: the next write must be the same */
        bool unsent;        /* mbedTLS waits for the socket to be writable */
        struct hostname server;
        char fault[160];
};

/* ---- configurations */

static const int suites[] = {
#if MBEDTLS_VERSION_MAJOR >= 3
        MBEDTLS_TLS1_3_AES_128_GCM_SHA256,
        MBEDTLS_TLS1_3_AES_256_GCM_SHA384,
        MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256,
#endif
        MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        0,
};

static int configure(mbedtls_ssl_config *config, int role)
{
        static const char *protocols[] = {"http/1.1", NULL};

        if (mbedtls_ssl_config_defaults(config, role, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT) != 0)
                return -ENOMEM;
#if MBEDTLS_VERSION_MAJOR >= 3
        mbedtls_ssl_conf_min_tls_version(config, MBEDTLS_SSL_VERSION_TLS1_2);
#else
        mbedtls_ssl_conf_min_version(config, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
#endif
        mbedtls_ssl_conf_ciphersuites(config, suites);
        mbedtls_ssl_conf_rng(config, crypto_random, NULL);
        return mbedtls_ssl_conf_alpn_protocols(config, protocols) == 0 ? 0 : -ENOMEM;
}

int tls_configure_server(mbedtls_ssl_config *config, mbedtls_x509_crt *certificate, mbedtls_pk_context *key)
{
        int r = configure(config, MBEDTLS_SSL_IS_SERVER);

        if (r == 0 && mbedtls_ssl_conf_own_cert(config, certificate, key) != 0)
                r = -ENOMEM;
        return r;
}

int tls_configure_client(mbedtls_ssl_config *config, mbedtls_x509_crt *trusted)
{
        int r = configure(config, MBEDTLS_SSL_IS_CLIENT);

        mbedtls_ssl_conf_authmode(config, MBEDTLS_SSL_VERIFY_REQUIRED);
        mbedtls_ssl_conf_ca_chain(config, trusted, NULL);
        return r;
}

/* ---- the socket below */

static int receive_raw(struct tls *t, unsigned char *to, size_t n)
{
        ssize_t got;

        if (!t->turn_bytes)
                return MBEDTLS_ERR_SSL_WANT_READ;
        if (n > t->turn_bytes)
                n = t->turn_bytes;
        do {
                got = recv(t->fd, to, n, MSG_DONTWAIT);
        } while (got < 0 && errno == EINTR);
        if (got < 0)
                return errno == EAGAIN ? MBEDTLS_ERR_SSL_WANT_READ : MBEDTLS_ERR_NET_CONN_RESET;
        t->turn_bytes -= (size_t)got;
        return (int)got;
}

static int receive_early(struct tls *t, unsigned char *to, size_t n)
{
        size_t early = buffer_used(&t->early);

        n = n < early ? n : early;
        memcpy(to, buffer_data(&t->early), n);
        buffer_consume(&t->early, n);
        return (int)n;
}

static int receive_joined(struct tls *t, unsigned char *to, size_t n)
{
        uint8_t bytes[4096];

        while (!buffer_used(&t->early)) {
                int got = receive_raw(t, bytes, sizeof(bytes)), r;

                if (got <= 0)
                        return got;
                r = handshake_join_feed(&t->join, bytes, (size_t)got, &t->early);
                if (r < 0)
                        return r == -EPROTO ? MBEDTLS_ERR_SSL_INVALID_RECORD : MBEDTLS_ERR_SSL_ALLOC_FAILED;
                t->joins = !t->join.over;
        }
        return receive_early(t, to, n);
}

static int receive(void *userdata, unsigned char *to, size_t n)
{
        struct tls *t = userdata;

        if (buffer_used(&t->early))
                return receive_early(t, to, n);
        return t->joins ? receive_joined(t, to, n) : receive_raw(t, to, n);
}

static int transmit(void *userdata, const unsigned char *from, size_t n)
{
        const struct tls *t = userdata;
        ssize_t sent;

        do {
                sent = send(t->fd, from, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (sent < 0 && errno == EINTR);
        if (sent < 0)
                return errno == EAGAIN ? MBEDTLS_ERR_SSL_WANT_WRITE : MBEDTLS_ERR_NET_SEND_FAILED;
        return (int)sent;
}

/* ---- whose certificate it is */

static bool has_address(const mbedtls_x509_crt *certificate, const struct hostname *server)
{
        size_t n = server->kind == HOST_IPV4 ? 4 : 16;

        for (const mbedtls_x509_sequence *s = &certificate->subject_alt_names; s; s = s->next)
                if (s->buf.tag == SAN_IP_ADDRESS && s->buf.len == n && memcmp(s->buf.p, server->address, n) == 0)
                        return true;
        return false;
}

/* mbedTLS compares names; of addresses 2.28 knows nothing, and a common name is no address's. */
static int check_address(void *userdata, mbedtls_x509_crt *certificate, int depth, uint32_t *flags)
{
        const struct tls *t = userdata;

        if (depth == 0 && !has_address(certificate, &t->server))
                *flags |= MBEDTLS_X509_BADCERT_CN_MISMATCH;
        return 0;
}

static int expect_server(struct tls *t, const struct hostname *server)
{
        t->server = *server;
        if (server->kind == HOST_NAME)
                return mbedtls_ssl_set_hostname(&t->ssl, t->server.text) == 0 ? 0 : -ENOMEM;
        mbedtls_ssl_set_verify(&t->ssl, check_address, t);
        return mbedtls_ssl_set_hostname(&t->ssl, NULL) == 0 ? 0 : -ENOMEM; /* RFC 6066 3: no address in SNI */
}

static void say_fault(struct tls *t, int error)
{
        static const struct {
                uint32_t flag;
                const char *text;
        } faults[] = {
                {MBEDTLS_X509_BADCERT_NOT_TRUSTED, "the server's certificate is by nobody that the broker trusts"},
                {MBEDTLS_X509_BADCERT_CN_MISMATCH, "the server's certificate is for another name"},
                {MBEDTLS_X509_BADCERT_EXPIRED, "the server's certificate has expired"},
                {MBEDTLS_X509_BADCERT_FUTURE, "the server's certificate is not valid yet"},
        };
        uint32_t flags = mbedtls_ssl_get_verify_result(&t->ssl);
        char text[128];

        if (error == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED) {
                (void)snprintf(t->fault, sizeof(t->fault), "the server's certificate is not acceptable");
                for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
                        if (flags & faults[i].flag) {
                                (void)snprintf(t->fault, sizeof(t->fault), "%s", faults[i].text);
                                return;
                        }
                return;
        }
        mbedtls_strerror(error, text, sizeof(text));
        (void)snprintf(t->fault, sizeof(t->fault), "%s", text);
}

/* ---- its life */

int tls_new(const mbedtls_ssl_config *config, int fd, struct budget *budget, const struct hostname *server,
        struct tls **ret)
{
        struct tls *t;
        int r = 0;

        if (!budget_charge(budget, TLS_CHARGED_BYTES))
                return -ENOBUFS;
        t = calloc(1, sizeof(*t));
        if (!t) {
                budget_return(budget, TLS_CHARGED_BYTES);
                return -ENOMEM;
        }
        t->fd = fd;
        t->budget = budget;
        buffer_init(&t->early, budget);
        handshake_join_init(&t->join, budget);
        t->joins = server != NULL;
        mbedtls_ssl_init(&t->ssl);
        if (mbedtls_ssl_setup(&t->ssl, config) != 0)
                r = -ENOMEM;
        mbedtls_ssl_set_bio(&t->ssl, t, transmit, receive, NULL);
        if (r == 0 && server)
                r = expect_server(t, server);
        if (r < 0) {
                tls_free(t);
                return r;
        }
        *ret = t;
        return 0;
}

void tls_free(struct tls *t)
{
        if (!t)
                return;
        mbedtls_ssl_free(&t->ssl);
        buffer_done(&t->early);
        handshake_join_done(&t->join);
        budget_return(t->budget, TLS_CHARGED_BYTES);
        free(t);
}

int tls_give(struct tls *t, struct buffer *from)
{
        return buffer_move(&t->early, from);
}

/* Before each call into mbedTLS, and with its result after it. */
static void begin_turn(struct tls *t)
{
        t->turn_bytes = TURN_BYTES;
}

static void end_turn(struct tls *t, int r)
{
        t->unsent = r == MBEDTLS_ERR_SSL_WANT_WRITE;
}

static bool is_wait(int r)
{
        return r == MBEDTLS_ERR_SSL_WANT_READ || r == MBEDTLS_ERR_SSL_WANT_WRITE;
}

int tls_handshake(struct tls *t)
{
        int r;

        if (t->state == TLS_FAILED)
                return TLS_E_FAILED;
        begin_turn(t);
        r = mbedtls_ssl_handshake(&t->ssl);
        end_turn(t, r);
        if (is_wait(r))
                return TLS_E_WAIT;
        if (r != 0) {
                say_fault(t, r);
                t->state = TLS_FAILED;
                return TLS_E_FAILED;
        }
        t->state = TLS_OPEN;
        return 0;
}

const char *tls_fault(const struct tls *t)
{
        return t->fault;
}

/* Until there is TLS, or when there is none any more, what comes is nothing; but its end is seen. */
static ssize_t drop(struct tls *t)
{
        uint8_t bytes[4096];
        ssize_t n;

        buffer_done(&t->early);
        do {
                n = recv(t->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        } while (n < 0 && errno == EINTR);
        return n > 0 ? -EAGAIN : n == 0 ? 0 : -errno;
}

ssize_t tls_read(struct tls *t, uint8_t *to, size_t n)
{
        int r;

        if (t->state == TLS_HANDSHAKING || t->state == TLS_FAILED)
                return drop(t);
        begin_turn(t);
        do {
                r = mbedtls_ssl_read(&t->ssl, to, n);
#if MBEDTLS_VERSION_MAJOR >= 3
        } while (r == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET);
#else
        } while (0);
#endif
        if (r > 0)
                return r;
        if (is_wait(r))
                return -EAGAIN;
        return r == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY ? 0 : -ECONNRESET;
}

ssize_t tls_write(struct tls *t, const uint8_t *from, size_t n)
{
        int r;

        if (t->state == TLS_HANDSHAKING)
                return -EAGAIN;
        if (t->state != TLS_OPEN)
                return -EPIPE;
        if (t->retry_bytes)
                n = t->retry_bytes;
        begin_turn(t);
        r = mbedtls_ssl_write(&t->ssl, from, n);
        end_turn(t, r);
        t->retry_bytes = is_wait(r) ? n : 0;
        if (r >= 0)
                return r;
        if (is_wait(r))
                return -EAGAIN;
        t->state = TLS_FAILED;
        return -EPIPE;
}

bool tls_finish(struct tls *t)
{
        int r;

        if (t->state != TLS_OPEN)
                return true;
        begin_turn(t);
        r = mbedtls_ssl_close_notify(&t->ssl);
        end_turn(t, r);
        if (is_wait(r))
                return false;
        t->state = r == 0 ? TLS_FINISHED : TLS_FAILED;
        return true;
}

bool tls_has_pending(const struct tls *t)
{
        if (t->state != TLS_OPEN && t->state != TLS_FINISHED)
                return false; /* a handshake takes all that is there */
        return buffer_used(&t->early) || mbedtls_ssl_check_pending(&t->ssl);
}

bool tls_has_unsent(const struct tls *t)
{
        return t->unsent;
}
