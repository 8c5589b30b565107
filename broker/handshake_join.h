/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a TLS server says in clear text at first (RFC 5246 7.4, RFC 8446 5.1): its handshake messages may be cut at any
 * byte by records, which mbedTLS 2.28 does not take at all, and 3.6 not behind their first bytes. Each gets a record of
 * its own here; alerts between them pass, and from the first record of another kind on all is left as it came. Pure but
 * for the buffers, which are bounded by a message and by what one feed brings.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/buffer.h"

#define HANDSHAKE_JOIN_MESSAGE_MAX 16384u /* RFC 8446 5.1: a record's most */

struct handshake_join {
        uint8_t header[5]; /* of the record that is coming in */
        size_t header_n;
        size_t record_left;
        struct buffer message; /* of which so much is here */
        bool over;             /* nothing is changed any more */
};

void handshake_join_init(struct handshake_join *j, struct budget *budget);
void handshake_join_done(struct handshake_join *j); /* idempotent */

/* Takes all of n bytes; what is to be read instead is added to out. 0; -EPROTO, then nothing more may be fed; -ENOBUFS,
 * -ENOMEM. */
int handshake_join_feed(struct handshake_join *j, const uint8_t *bytes, size_t n, struct buffer *out);
