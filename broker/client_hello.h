/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A tunnel's first bytes: what they are, and what a TLS ClientHello says (RFC 8446 4.1.2 and 5.1, RFC 5246 7.4.1.2, RFC
 * 6066 3). Pure, embedded, no allocation. The message may be cut at any byte by TCP and by TLS records; every length in
 * it must add up.
 *
 * The caller keeps the bytes, since they are forwarded as they came, with their record boundaries, and shows all of
 * them again with each call; only the new ones are walked.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/reason.h"
#include "proto/wire/hostname.h"

/* What the first byte tells. */
enum first_byte {
        FIRST_BYTE_TLS,   /* a handshake record: client_hello_parse() */
        FIRST_BYTE_HTTP,  /* a token's byte, or CR: http1_request_feed() with `first` */
        FIRST_BYTE_OTHER, /* neither */
};

enum first_byte first_byte_of(uint8_t byte);

#define CLIENT_HELLO_MAX_BYTES     (16u * 1024u) /* the handshake message with its header (INTERFACES.md) */
#define CLIENT_HELLO_RAW_MAX_BYTES (32u * 1024u) /* with the records' headers: what the caller has to hold at most */
#define CLIENT_HELLO_NAME_MAX      255u

enum client_hello_sni {
        CLIENT_HELLO_SNI_ABSENT,
        CLIENT_HELLO_SNI_ONE,
        CLIENT_HELLO_SNI_SEVERAL, /* more than one name: never the target */
};

/* Zeroed: ready. */
struct client_hello {
        /* Private: how far the records were walked. */
        uint8_t verdict;
        uint8_t header[4];    /* of the handshake message */
        uint32_t walked;      /* raw bytes */
        uint32_t record_left; /* of the record's payload */
        uint32_t message_n;   /* bytes of the message walked so far */

        /* Valid when complete. */
        enum client_hello_sni sni;
        uint16_t name_n; /* as sent; above CLIENT_HELLO_NAME_MAX the name is cut, and is nobody's */
        char name[CLIENT_HELLO_NAME_MAX + 1]; /* any bytes, also NUL; NUL-terminated */
        bool ech;                             /* encrypted_client_hello is offered, in earnest or as GREASE */
        uint16_t legacy_version;
        uint32_t raw_bytes; /* of the records that carry the message; what follows is opaque */
};

#define CLIENT_HELLO_E_MORE      1
#define CLIENT_HELLO_E_MALFORMED 2 /* or no ClientHello at all, or too large: protocol_not_allowed */

/* raw: everything since the tunnel's first byte, n of it. 0, CLIENT_HELLO_E_MORE, CLIENT_HELLO_E_MALFORMED; the last
 * and 0 stay. */
int client_hello_parse(struct client_hello *h, const uint8_t *raw, size_t n);

/*
 * A complete hello's message in one record, whatever records it came in: at most raw_bytes, to ret_record. The bytes
 * written.
 */
size_t client_hello_join(const struct client_hello *h, const uint8_t *raw, uint8_t *ret_record);

/*
 * Does a complete hello name this target? REASON_ALLOWED, REASON_SNI_MISSING, REASON_SNI_MISMATCH. Without regard to
 * ASCII case; a trailing dot is another name; a target that is an address needs no SNI.
 */
enum reason client_hello_judge(const struct client_hello *h, const struct hostname *target);
