/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A checked request: past this nobody sees a client's raw bytes. What is not known yet is absent: the protocol before the
 * tunnel's first bytes, method and path outside of HTTP. Pure.
 */

#include <stdint.h>

#include "proto/wire/hostname.h"

enum via {
        VIA_CONNECT,
        VIA_HTTP,               /* absolute-form */
        VIA_SOCKS5,
        VIA_TRANSPARENT,
        VIA_DNS,
        VIA_INSPECT,
        VIA_MAX_,
};

enum protocol {
        PROTOCOL_AUTO,          /* in a rule: TLS or HTTP; in a request: not known yet */
        PROTOCOL_TLS,
        PROTOCOL_HTTP,
        PROTOCOL_TCP,
        PROTOCOL_MAX_,
};

struct request {
        enum via via;
        enum protocol protocol;
        struct hostname host;
        uint16_t port;          /* 0: not said (DNS) */
        const char *method;     /* NULL: not known; a token of RFC 9110, case kept. Borrowed. */
        const char *path;       /* NULL: not known; as sent, without the query. Borrowed. */
};

const char *via_name(enum via via);             /* "connect", "http", "socks5", "transparent", "dns", "inspect" */
const char *protocol_name(enum protocol protocol);
