/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The server's side of SOCKS5 (RFC 1928): no authentication, CONNECT only. Pure, embedded, no allocation; the verdict
 * depends on the bytes alone, not on the pieces they come in.
 */

#include <stddef.h>
#include <stdint.h>

#include "broker/reason.h"
#include "proto/wire/hostname.h"

#define SOCKS5_VERSION 5u /* the first byte that tells SOCKS5 from HTTP on the egress port */

/* RFC 1928 6; the others are in the table of broker/reason.h. */
#define SOCKS5_REPLY_SUCCEEDED             0
#define SOCKS5_REPLY_FAILURE               1
#define SOCKS5_REPLY_COMMAND_NOT_SUPPORTED 7
#define SOCKS5_REPLY_ADDRESS_NOT_SUPPORTED 8

enum socks5_event {
        SOCKS5_MORE,      /* all bytes were taken and more must come */
        SOCKS5_METHOD,    /* send SOCKS5_METHOD_NONE and feed on */
        SOCKS5_NO_METHOD, /* send SOCKS5_METHOD_REFUSED and close */
        SOCKS5_REQUEST,   /* host and port are set; what follows is the tunnel's */
        SOCKS5_REFUSED,   /* send socks5_reply(reply), close; a record only if reason is not REASON_ALLOWED */
        SOCKS5_NOT_SOCKS, /* the greeting has another version: close, no answer */
};

#define SOCKS5_METHOD_BYTES   2u
#define SOCKS5_METHOD_NONE    "\x05\x00"
#define SOCKS5_METHOD_REFUSED "\x05\xff"

#define SOCKS5_REQUEST_MAX_BYTES 262u /* 4, length byte, 255 of a name, port */

/* Zeroed: ready for a connection's first byte. */
struct socks5 {
        uint8_t state; /* private */
        uint8_t methods_left;
        uint8_t no_auth;
        uint16_t used; /* of bytes */
        uint8_t bytes[SOCKS5_REQUEST_MAX_BYTES];

        struct hostname host; /* with SOCKS5_REQUEST */
        uint16_t port;
        uint8_t reply; /* with SOCKS5_REFUSED */
        enum reason
                reason; /* REASON_MALFORMED_REQUEST, or REASON_ALLOWED with replies 7 and 8, which leave no record */
};

/* Takes bytes up to the next event and no further: *ret_taken of n. Not to be called after NO_METHOD, REQUEST, REFUSED,
 * NOT_SOCKS. */
enum socks5_event socks5_feed(struct socks5 *s, const uint8_t *bytes, size_t n, size_t *ret_taken);

/* A reply; bound is the address it names (an address, not a name), or NULL for 0.0.0.0:0. Bytes written. */
#define SOCKS5_REPLY_MAX_BYTES 22u
size_t socks5_reply(
        uint8_t code, const struct hostname *bound, uint16_t port, uint8_t ret_bytes[SOCKS5_REPLY_MAX_BYTES]);
