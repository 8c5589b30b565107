/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/socks5.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define METHOD_NO_AUTHENTICATION 0x00u
#define COMMAND_CONNECT          1u
#define ADDRESS_IPV4             1u
#define ADDRESS_NAME             3u
#define ADDRESS_IPV6             4u

enum socks5_state {
        SOCKS5_IN_VERSION, /* zero: the first */
        SOCKS5_IN_METHODS_N,
        SOCKS5_IN_METHODS,
        SOCKS5_IN_REQUEST,
        SOCKS5_DONE,
};

static enum socks5_event refuse(struct socks5 *s, uint8_t reply)
{
        s->reply = reply;
        s->reason = reply == SOCKS5_REPLY_FAILURE ? REASON_MALFORMED_REQUEST : REASON_ALLOWED;
        s->state = SOCKS5_DONE;
        return SOCKS5_REFUSED;
}

static enum socks5_event end_methods(struct socks5 *s)
{
        s->state = s->no_auth ? SOCKS5_IN_REQUEST : SOCKS5_DONE;
        return s->no_auth ? SOCKS5_METHOD : SOCKS5_NO_METHOD;
}

static enum socks5_event take_methods_n(struct socks5 *s, uint8_t n)
{
        s->methods_left = n;
        s->state = SOCKS5_IN_METHODS;
        return n ? SOCKS5_MORE : end_methods(s);
}

static enum socks5_event take_method(struct socks5 *s, uint8_t method)
{
        s->no_auth |= method == METHOD_NO_AUTHENTICATION;
        return --s->methods_left ? SOCKS5_MORE : end_methods(s);
}

/* VER CMD RSV ATYP ADDR PORT: how long it will be, 0 while that is not known. */
static size_t request_bytes(const struct socks5 *s)
{
        if (s->used < 5)
                return 0;
        switch (s->bytes[3]) {
        case ADDRESS_IPV4: return 4 + 4 + 2;
        case ADDRESS_IPV6: return 4 + 16 + 2;
        default: return 4 + 1 + s->bytes[4] + 2u;
        }
}

static int take_address(struct socks5 *s)
{
        const uint8_t *address = s->bytes + 4;

        switch (s->bytes[3]) {
        case ADDRESS_IPV4: hostname_from_address(HOST_IPV4, address, &s->host); return 0;
        case ADDRESS_IPV6: hostname_from_address(HOST_IPV6, address, &s->host); return 0;
        default: return hostname_parse((const char *)address + 1, *address, &s->host);
        }
}

/* A command that is not spoken is read to its end, so that the client reads the reply and no reset. */
static enum socks5_event end_request(struct socks5 *s)
{
        if (s->bytes[1] != COMMAND_CONNECT)
                return refuse(s, SOCKS5_REPLY_COMMAND_NOT_SUPPORTED);

        s->port = (uint16_t)(s->bytes[s->used - 2] << 8 | s->bytes[s->used - 1]);
        if (take_address(s) || !s->port)
                return refuse(s, SOCKS5_REPLY_FAILURE);
        s->state = SOCKS5_DONE;
        return SOCKS5_REQUEST;
}

static enum socks5_event take_request(struct socks5 *s, uint8_t byte)
{
        s->bytes[s->used++] = byte;
        if (s->used == 1 && byte != SOCKS5_VERSION)
                return refuse(s, SOCKS5_REPLY_FAILURE);
        if (s->used == 3 && byte) /* RSV */
                return refuse(s, SOCKS5_REPLY_FAILURE);
        if (s->used == 4 && byte != ADDRESS_IPV4 && byte != ADDRESS_NAME && byte != ADDRESS_IPV6)
                return refuse(s, s->bytes[1] == COMMAND_CONNECT ? SOCKS5_REPLY_ADDRESS_NOT_SUPPORTED
                                                                : SOCKS5_REPLY_COMMAND_NOT_SUPPORTED);
        return s->used == request_bytes(s) ? end_request(s) : SOCKS5_MORE;
}

static enum socks5_event take(struct socks5 *s, uint8_t byte)
{
        switch ((enum socks5_state)s->state) {
        case SOCKS5_IN_VERSION:
                s->state = byte == SOCKS5_VERSION ? SOCKS5_IN_METHODS_N : SOCKS5_DONE;
                return byte == SOCKS5_VERSION ? SOCKS5_MORE : SOCKS5_NOT_SOCKS;
        case SOCKS5_IN_METHODS_N: return take_methods_n(s, byte);
        case SOCKS5_IN_METHODS: return take_method(s, byte);
        case SOCKS5_IN_REQUEST: return take_request(s, byte);
        case SOCKS5_DONE: break;
        }
        assert(!"fed after the verdict");
        return SOCKS5_NOT_SOCKS;
}

enum socks5_event socks5_feed(struct socks5 *s, const uint8_t *bytes, size_t n, size_t *ret_taken)
{
        enum socks5_event event = SOCKS5_MORE;
        size_t i = 0;

        while (i < n && event == SOCKS5_MORE)
                event = take(s, bytes[i++]);
        *ret_taken = i;
        return event;
}

size_t socks5_reply(
        uint8_t code, const struct hostname *bound, uint16_t port, uint8_t ret_bytes[SOCKS5_REPLY_MAX_BYTES])
{
        bool ipv6 = bound && bound->kind == HOST_IPV6;
        size_t address_n = ipv6 ? 16 : 4;

        assert(!bound || bound->kind != HOST_NAME);
        memset(ret_bytes, 0, SOCKS5_REPLY_MAX_BYTES);
        ret_bytes[0] = SOCKS5_VERSION;
        ret_bytes[1] = code;
        ret_bytes[3] = ipv6 ? ADDRESS_IPV6 : ADDRESS_IPV4;
        if (bound) {
                memcpy(ret_bytes + 4, bound->address, address_n);
                ret_bytes[4 + address_n] = (uint8_t)(port >> 8);
                ret_bytes[5 + address_n] = (uint8_t)port;
        }
        return 4 + address_n + 2;
}
