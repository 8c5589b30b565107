/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A line of an audit log as its chain sees it: what the record says does not matter, only that it is one JSON object,
 * whose seq and hash stand where the broker writes them. A checkpoint's own members are checked for their form. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/audit_checkpoint.h"

struct audit_sealed {
        uint64_t seq;
        const char *body; /* the line up to its tail; borrowed */
        size_t body_n;
        struct audit_hash hash;
        bool is_start;
        bool is_stop;
        bool is_checkpoint;
        struct audit_checkpoint checkpoint; /* where it is one; signature_n 0: a question without an answer */
};

/* 0, or -EBADMSG. text needs no NUL. */
int audit_sealed_parse(const char *text, size_t n, struct audit_sealed *ret);
