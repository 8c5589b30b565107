/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the broker itself says to a client (INTERFACES.md, Reasons): refusals over HTTP with Proxy-Status (RFC 9209) and
 * application/problem+json (RFC 9457), the 200 to a CONNECT, TLS alerts.
 */

#include <stdbool.h>
#include <stdint.h>

#include "broker/buffer.h"
#include "broker/reason.h"

struct reply_problem {
        enum reason reason;
        const char *host;       /* canonical; NULL: the request had none */
        uint16_t port;          /* 0: none */
        const char *detail;     /* what to do about it; NULL or "": reply_detail() */
        uint64_t retry_after_s; /* 0: time does not help */
        bool head;              /* the request was HEAD: no body */
        bool close;             /* the connection ends behind it */
};

/* Each: 0, -ENOBUFS, -ENOMEM; nothing is appended then. */
int reply_problem(struct buffer *out, const struct reply_problem *problem);
int reply_established(struct buffer *out);  /* to CONNECT */
int reply_head_timeout(struct buffer *out); /* 408 */

/* RFC 8446 6: fatal alerts. */
enum reply_alert {
        REPLY_ALERT_ACCESS_DENIED = 49,
        REPLY_ALERT_DECODE_ERROR = 50,
        REPLY_ALERT_UNRECOGNIZED_NAME = 112,
};
int reply_alert(struct buffer *out, enum reply_alert alert);

/* A sentence for a person where nothing more is known than the reason. Never NULL. */
const char *reply_detail(enum reason reason);
