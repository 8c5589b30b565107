/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Is an audit log whole and unaltered? Takes its lines in order and tells what is wrong with them; what the chain and
 * the signatures are is said in broker/audit_record.h and broker/audit_checkpoint.h. Needs the same memory whatever
 * the log's size. No I/O.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/audit_checkpoint.h"
#include "tools/wbctl/audit_reader.h"

enum finding_kind {
        FINDING_NOT_A_RECORD,
        FINDING_TOO_LONG,
        FINDING_TORN,
        FINDING_ALTERED,
        FINDING_MISSING,
        FINDING_DUPLICATE,
        FINDING_INSERTED,
        FINDING_REORDERED,
        FINDING_FILE_NAME,
        FINDING_BAD_SIGNATURE,
        FINDING_WRONG_KEY,
        FINDING_REPLACED, /* something was signed once that is not in this log */
        FINDING_TRUNCATED,
        FINDING_UNSIGNED,
        FINDING_MAX_,
};

const char *finding_name(enum finding_kind kind); /* "altered" */

#define FINDING_TEXT_BYTES 400

struct finding {
        enum finding_kind kind;
        const char *file; /* "the log" where no line of any was read */
        uint64_t line;    /* 0: of the log as a whole, or of the file's end */
        char text[FINDING_TEXT_BYTES];
};

typedef void (*finding_handler)(void *userdata, const struct finding *finding);

struct audit_check_options {
        const struct audit_hash
                *keys; /* fingerprints of who may have signed; borrowed. keys_n 0: whoever, but one alone */
        size_t keys_n;
        bool partial;  /* older records may be elsewhere */
        bool has_head; /* what the broker's state_dir says was signed last: */
        uint64_t head_seq;
        struct audit_hash head_hash;
};

struct audit_summary {
        uint64_t records_n;
        uint64_t findings_n;
        uint64_t first_seq; /* 0: no record */
        uint64_t last_seq;
        uint64_t checkpoints_n;           /* that are good */
        uint64_t signed_seq;              /* the last of them */
        char signed_ts[CLOCK_TEXT_BYTES]; /* its time; "" if there is none */
        uint64_t unsigned_n;              /* records behind it */
        uint64_t crashes_n;               /* starts that no stop stands before */
        uint64_t unchecked_n;             /* records that only one that is not there could vouch for */
        struct audit_hash key;            /* the fingerprint of who signed the first of them */
};

struct audit_check;

/* 0 or -ENOMEM. */
int audit_check_new(
        const struct audit_check_options *options, finding_handler handler, void *userdata, struct audit_check **ret);
void audit_check_free(struct audit_check *check); /* takes NULL */

void audit_check_line(struct audit_check *check, const struct audit_text *text);

/* When all lines have been taken. */
void audit_check_end(struct audit_check *check);

/* Lives as long as the check. */
const struct audit_summary *audit_check_summary(const struct audit_check *check);
