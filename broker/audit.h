/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The audit log (INTERFACES.md, Audit record): one JSON object a line, written by one thread in batches. Records are
 * copied when submitted; nothing of them needs to live on.
 */

#include <stdbool.h>
#include <stdint.h>

#include "broker/reason.h"
#include "broker/request.h"

enum audit_event {
        AUDIT_EGRESS_OPEN,
        AUDIT_EGRESS_CLOSE,
        AUDIT_EGRESS_DENY,
        AUDIT_REQUEST,
        AUDIT_DNS,
        AUDIT_VM_ADD,
        AUDIT_VM_RM,
        AUDIT_ACTIVATE,
        AUDIT_QUIESCE,
        AUDIT_POLICY_LOAD,
        AUDIT_REVOKE,
        AUDIT_SECRET_PUT,
        AUDIT_SECRET_USE,
        AUDIT_START,
        AUDIT_STOP,
        AUDIT_CHECKPOINT,
        AUDIT_EVENT_MAX_,
};

enum audit_sync {
        AUDIT_SYNC_NONE,
        AUDIT_SYNC_BATCH,
        AUDIT_SYNC_EACH,
};

/* NULL, 0 or -1 (rule, where 0 is a rule) leave a field out, as INTERFACES.md says of absent fields. Texts may hold any
 * byte. */
struct audit_record {
        enum audit_event event;
        const char *vm;
        uint64_t generation;
        uint64_t session;   /* counts the broker's sessions */
        bool has_decision;  /* decision and reason are written */
        enum reason reason; /* REASON_ALLOWED: "allow" */
        int rule;           /* -1: absent */
        bool has_via;
        enum via via;
        const char *host;
        uint16_t port;
        const char *address; /* dialled */
        const char *method;
        const char *path;
        int status;
        bool has_bytes;    /* bytes_up and bytes_down are written, also when 0 */
        uint64_t bytes_up; /* guest to server */
        uint64_t bytes_down;
        uint64_t duration_ms;
        bool ech;
        const uint8_t *policy_sha256; /* 32 bytes */
        const char *detail;           /* what a person should know; written as "detail" */
};
#define AUDIT_RECORD_INIT(e) ((struct audit_record){.event = (e), .rule = -1})

struct audit;

struct audit_options {
        const char *dir;       /* exists; only one broker at a time writes there. Borrowed for the call. */
        uint64_t rotate_bytes; /* a file that would grow larger is put aside first */
        enum audit_sync sync;
        bool required; /* nothing is allowed that cannot be recorded */
        int notary_fd; /* who signs checkpoints (broker/audit_notary.h); -1: nobody, and there are none. The log's. */
};

/*
 * A checkpoint is written behind the first record after the start and behind the last, as the first record of each file
 * that follows another, and otherwise when this many records (and what was written in one go with the last of them), or
 * the first of them this long ago, wait for one. Where it cannot be signed the log goes on without, and it is tried
 * again.
 */
#define AUDIT_CHECKPOINT_RECORDS 4096u
#define AUDIT_CHECKPOINT_NS      (UINT64_C(60) * 1000000000)

/*
 * Opens DIR/audit.log, continues its sequence (a line that a crash left half written is cut off), and starts the
 * thread. 0; -EBUSY (another broker writes there), -EBADMSG (the end of the log is no record), or another negative
 * errno.
 */
int audit_new(const struct audit_options *options, struct audit **ret);

/* Writes what is queued, puts it on disk, ends the thread. Takes NULL. */
void audit_free(struct audit *audit);

/* How many bytes of half a record, which a crash left at the end, were cut off when it was opened. */
uint64_t audit_cut_bytes(const struct audit *audit);

/* rotate_bytes, sync and required; dir and notary_fd stay. */
void audit_set_options(struct audit *audit, const struct audit_options *options);

/*
 * Queues a record from any thread; never blocks on the disk. 0; -ENOBUFS if the queue is full, -EIO while the log
 * cannot be written: where the configuration says `required`, the caller then denies with audit_unavailable. What tells
 * of the past (a close, a denial) is still queued while the log cannot be written, as long as there is room.
 *
 * done may be NULL; else it is called exactly once, on the audit thread, with 0 when the record stands as surely as
 * `sync` asks for an allowed connection (each: on disk; batch, none: queued, and then audit_submit() answers
 * AUDIT_E_DONE and done is not called), or with -EIO, and then the record is not in the log. After a negative answer
 * done is not called.
 */
#define AUDIT_E_DONE 1
int audit_submit(
        struct audit *audit, const struct audit_record *record, void (*done)(void *userdata, int r), void *userdata);

/*
 * Is it so far behind that who would cause more records should wait a little? What has happened meanwhile then still
 * finds room. Not while the log cannot be written: that is answered by audit_submit(). From any thread.
 */
bool audit_is_behind(struct audit *audit);
