/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A checked request: past this nobody sees a client's raw bytes. What is not known yet is absent: the protocol before
 * the tunnel's first bytes, method and path outside of HTTP. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/hostname.h"

enum via {
        VIA_CONNECT,
        VIA_HTTP, /* absolute-form */
        VIA_SOCKS5,
        VIA_TRANSPARENT,
        VIA_DNS,
        VIA_INSPECT,
        VIA_MAX_,
};

enum protocol {
        PROTOCOL_AUTO, /* in a rule: TLS or HTTP; in a request: not known yet */
        PROTOCOL_TLS,
        PROTOCOL_HTTP,
        PROTOCOL_TCP,
        PROTOCOL_MAX_,
};

struct request {
        enum via via;
        enum protocol protocol;
        struct hostname host;
        uint16_t port;      /* 0: not said (DNS) */
        const char *method; /* NULL: not known; a token of RFC 9110, case kept. Borrowed. */
        const char *path;   /* NULL: not known; as sent, without the query. Borrowed. */
};

const char *via_name(enum via via); /* "connect", "http", "socks5", "transparent", "dns", "inspect" */
const char *protocol_name(enum protocol protocol);

/* A token of RFC 9110, 5.6.2: what a method is made of. */
bool request_is_method(const char *text, size_t n);

/*
 * A path as an origin-form target may have it: visible ASCII from a slash on, without '?' and '#'; or the "*" of
 * OPTIONS.
 */
bool request_is_path(const char *text, size_t n);

/*
 * What servers read differently from us, so that a path rule cannot judge it: a dot segment or a backslash, each also
 * percent-encoded; an encoded slash.
 */
bool request_path_is_ambiguous(const char *path);
bool request_path_has_encoded_slash(const char *path);

/* Does path begin with an encoded slash (%2f, %2F)? */
bool request_is_encoded_slash(const char *path);
