/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/audit_checkpoint.h"
#include "broker/audit_file.h"
#include "broker/audit_notary.h"
#include "broker/audit_record.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/*
 * Theory of operation. Two queues of the same size: submitters write record bodies into the front one under the lock;
 * the thread swaps them when the back one is empty, and works off the back one without the lock. A record's seq is
 * given when it is written, so that one that could not be leaves no gap. While writing fails, the back queue is kept
 * and tried again; records that somebody waits for are answered -EIO and dropped, since what they would have allowed
 * does not happen. Each line is sealed with its hash when it is written, and checkpoints are asked for here: the notary
 * is another process, so it is waited for, but never long.
 */

#define QUEUE_BYTES   (4u * 1024u * 1024u)
#define BEHIND_BYTES  (QUEUE_BYTES / 2)
#define CHUNK_BYTES   (256u * 1024u)        /* one write(2); more if one record is larger */
#define SYNC_AFTER_NS (500 * NSEC_PER_MSEC) /* INTERFACES.md: on disk within 1 s */
#define RETRY_NS      (200 * NSEC_PER_MSEC)

/* For the notary: some milliseconds, unless the monitor looks at a process just then. Records wait meanwhile, so
 * while they come it is asked again later instead. */
#define ASK_NS       (200 * NSEC_PER_MSEC)
#define ASK_LAST_NS  (3 * NSEC_PER_SEC) /* at the start and at the end */
#define ASK_AGAIN_NS (5 * NSEC_PER_SEC)

/* Stands before each body in a queue; bodies are padded to its alignment. */
struct entry {
        uint64_t realtime_ns;
        void (*done)(void *userdata, int r);
        void *userdata;
        uint32_t body_n;
        bool taken; /* answered and dropped, or written */
};

struct queue {
        char *bytes;
        size_t used;
};

struct audit {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake;

        /* Under the lock. */
        struct queue *front;
        bool failing;
        bool stopping;
        bool required;
        enum audit_sync sync;
        uint64_t rotate_bytes;

        /* The thread's own. */
        struct queue *back;
        struct queue queues[2];
        struct audit_file file;
        char *chunk;
        size_t chunk_room;
        uint64_t sync_due_ns;     /* 0: all that is written is on disk, or need not be */
        struct audit_asker asker; /* sock -1: nobody signs */
        bool notary_failing;
        bool begun;                 /* the first record stands, and its checkpoint was asked for */
        uint64_t unsigned_n;        /* records behind the last checkpoint */
        uint64_t checkpoint_due_ns; /* 0: nothing is unsigned */
};

static size_t entry_stride(size_t body_n)
{
        return (sizeof(struct entry) + body_n + _Alignof(struct entry) - 1) / _Alignof(struct entry) *
               _Alignof(struct entry);
}

static bool tells_of_the_past(const struct audit_record *record)
{
        return !(record->has_decision && record->reason == REASON_ALLOWED);
}

static int enqueue(struct audit *a, const struct audit_record *record, void (*done)(void *, int), void *userdata)
{
        struct queue *q = a->front;
        struct entry *e = (struct entry *)(void *)(q->bytes + q->used);

        if (QUEUE_BYTES - q->used < entry_stride(audit_record_room(record)))
                return -ENOBUFS;
        *e = (struct entry){.realtime_ns = clock_realtime_ns(), .done = done, .userdata = userdata};
        e->body_n = (uint32_t)audit_record_body(record, (char *)(e + 1));
        q->used += entry_stride(e->body_n);
        pthread_cond_signal(&a->wake);
        return 0;
}

int audit_submit(
        struct audit *a, const struct audit_record *record, void (*done)(void *userdata, int r), void *userdata)
{
        bool waits;
        int r;

        pthread_mutex_lock(&a->lock);
        waits = done && a->sync == AUDIT_SYNC_EACH;
        if (a->failing && a->required && !tells_of_the_past(record))
                r = -EIO;
        else
                r = enqueue(a, record, waits ? done : NULL, userdata);
        pthread_mutex_unlock(&a->lock);
        return r < 0 ? r : done && !waits ? AUDIT_E_DONE : 0;
}

bool audit_is_behind(struct audit *a)
{
        bool behind;

        pthread_mutex_lock(&a->lock);
        behind = !a->failing && a->front->used > BEHIND_BYTES;
        pthread_mutex_unlock(&a->lock);
        return behind;
}

/* Moves *at over one entry. */
static struct entry *next_entry(struct queue *q, size_t *at)
{
        struct entry *e = (struct entry *)(void *)(q->bytes + *at);

        if (*at == q->used)
                return NULL;
        *at += entry_stride(e->body_n);
        return e;
}

/* A chunk under way: whole lines, and where the chain stands behind them. */
struct chunk {
        size_t n;
        uint64_t seq;
        struct audit_hash hash;
        uint64_t lines_n;
};

static size_t line_room(const struct entry *e)
{
        return AUDIT_HEAD_MAX_BYTES + e->body_n + AUDIT_TAIL_BYTES;
}

/* Has room for need bytes behind the first n; only a chunk's first line may make it larger. */
static bool chunk_room(struct audit *a, size_t n, size_t need)
{
        char *larger;

        if (n + need <= a->chunk_room)
                return true;
        larger = n ? NULL : realloc(a->chunk, need);
        if (!larger)
                return false;
        a->chunk = larger;
        a->chunk_room = need;
        return true;
}

/* Appends an entry's line; false if there is no room for it. A single record always fits. */
static bool chunk_add(struct audit *a, struct chunk *c, const struct entry *e)
{
        struct audit_hash hash;
        char *line;
        size_t n;

        if (!chunk_room(a, c->n, line_room(e)))
                return false;
        line = a->chunk + c->n;
        n = audit_record_head(c->seq + 1, e->realtime_ns, line);
        memcpy(line + n, e + 1, e->body_n);
        n += e->body_n;
        if (audit_record_hash(&c->hash, line, n, &hash) < 0)
                return false;
        audit_record_tail(&hash, line + n);
        c->n += n + AUDIT_TAIL_BYTES;
        c->seq++;
        c->hash = hash;
        c->lines_n++;
        return true;
}

/* Those of [from, to) have been written. */
static void mark_written(struct queue *q, size_t from, size_t to)
{
        while (from < to)
                next_entry(q, &from)->taken = true;
}

/* Tells those of [from, to) that wait, once each; after a failure they are dropped as well. */
static void answer(struct queue *q, size_t from, size_t to, int r)
{
        while (from < to) {
                struct entry *e = next_entry(q, &from);

                if (!e->done)
                        continue;
                e->done(e->userdata, r < 0 ? -EIO : 0);
                e->done = NULL;
                e->taken = true;
        }
}

/* As much of the back queue from *at on as makes one chunk and the file has room for; *ret_end is behind it. */
static void fill_chunk(struct audit *a, size_t at, struct chunk *ret, size_t *ret_end)
{
        struct chunk c = {.seq = a->file.seq, .hash = a->file.hash};
        size_t next = at;

        *ret_end = at;
        for (struct entry *e = next_entry(a->back, &next); e; e = next_entry(a->back, &next)) {
                if (!e->taken && c.n && audit_file_is_full(&a->file, c.n, line_room(e)))
                        break;
                if (!e->taken && !chunk_add(a, &c, e))
                        break;
                *ret_end = next;
        }
        *ret = c;
}

/* ---- checkpoints */

static void set_notary_failing(struct audit *a, int r)
{
        if (r < 0 && !a->notary_failing)
                log_errno(r, "the audit log goes on without a signature");
        else if (r > 0 && !a->notary_failing)
                log_error("the audit log goes on without a signature: nobody answers");
        else if (r == 0 && a->notary_failing)
                log_warning("the audit log is signed again");
        a->notary_failing = r != 0;
}

static int append_checkpoint(struct audit *a, const struct audit_checkpoint *checkpoint)
{
        char line[AUDIT_CHECKPOINT_MAX_BYTES + AUDIT_TAIL_BYTES];
        size_t n = audit_checkpoint_line(checkpoint, line);
        struct audit_hash hash;
        int r = audit_record_hash(&a->file.hash, line, n, &hash);

        if (r < 0)
                return r;
        audit_record_tail(&hash, line + n);
        r = audit_file_append(&a->file, line, n + AUDIT_TAIL_BYTES, checkpoint->seq, &hash);
        if (r == 0 && checkpoint->signature_n) {
                a->unsigned_n = 0;
                a->checkpoint_due_ns = 0;
        }
        return r;
}

/* There is room for it, and what it vouches for is on disk: a signature must not outlive that. */
static int prepare_checkpoint(struct audit *a, enum audit_sync sync)
{
        int r = audit_file_prepare(&a->file);

        if (r == 0 && audit_file_is_full(&a->file, 0, AUDIT_CHECKPOINT_MAX_BYTES + AUDIT_TAIL_BYTES))
                return audit_file_rotate(&a->file); /* which puts it on disk */
        return r < 0 || sync == AUDIT_SYNC_NONE ? r : audit_file_sync(&a->file);
}

/* Negative only where the log cannot be written. */
static int write_checkpoint(struct audit *a, enum audit_sync sync, uint64_t timeout_ns)
{
        struct audit_question question;
        struct audit_checkpoint checkpoint;
        int r = a->asker.sock < 0 ? 0 : prepare_checkpoint(a, sync);

        if (a->asker.sock < 0 || r < 0)
                return r;
        question = (struct audit_question){.seq = a->file.seq + 1, .previous = a->file.hash};
        r = audit_notary_ask(&a->asker, &question, timeout_ns, &checkpoint);
        set_notary_failing(a, r);
        if (r != 0)
                a->checkpoint_due_ns = clock_monotonic_ns() + ASK_AGAIN_NS;
        if (r == AUDIT_NOTARY_E_NOT_ASKED)
                return 0;
        if (r < 0) {
                /* It may be signed all the same: who checks must know what was asked. */
                checkpoint = (struct audit_checkpoint){.seq = question.seq, .previous = question.previous};
                clock_format(clock_realtime_ns(), checkpoint.ts);
        }
        r = append_checkpoint(a, &checkpoint);
        return r == 0 && sync == AUDIT_SYNC_EACH ? audit_file_sync(&a->file) : r;
}

static int write_due_checkpoint(struct audit *a, enum audit_sync sync, bool stopping)
{
        bool first = !a->begun;

        if (a->unsigned_n == 0)
                a->checkpoint_due_ns = 0;
        if (a->asker.sock < 0 || a->unsigned_n == 0)
                return 0;
        if (!first && !stopping && clock_monotonic_ns() < a->checkpoint_due_ns)
                return 0;
        a->begun = true;
        return write_checkpoint(a, sync, first || stopping ? ASK_LAST_NS : ASK_NS);
}

static void count_unsigned(struct audit *a, uint64_t n)
{
        uint64_t now_ns = clock_monotonic_ns();

        if (a->asker.sock < 0)
                return;
        if (a->unsigned_n == 0)
                a->checkpoint_due_ns = now_ns + AUDIT_CHECKPOINT_NS;
        if (a->unsigned_n < AUDIT_CHECKPOINT_RECORDS && a->unsigned_n + n >= AUDIT_CHECKPOINT_RECORDS)
                a->checkpoint_due_ns = now_ns;
        a->unsigned_n += n;
}

/* Puts the file aside if the next line does not fit; the one that follows it begins with a checkpoint. */
static int make_room(struct audit *a, enum audit_sync sync, size_t at)
{
        const struct entry *e = next_entry(a->back, &at);
        int r = audit_file_prepare(&a->file);

        while (e && e->taken)
                e = next_entry(a->back, &at);
        if (r < 0 || !e || !audit_file_is_full(&a->file, 0, line_room(e)))
                return r;
        r = audit_file_rotate(&a->file);
        return r < 0 ? r : write_checkpoint(a, sync, ASK_NS);
}

/* ---- the thread */

/* Writes one chunk; *at moves behind it. */
static int write_chunk(struct audit *a, enum audit_sync sync, size_t *at)
{
        struct chunk c;
        size_t end;
        int r = make_room(a, sync, *at);

        if (r < 0)
                return r;
        fill_chunk(a, *at, &c, &end);
        if (end == *at)
                return -ENOMEM;
        if (c.n)
                r = audit_file_append(&a->file, a->chunk, c.n, c.seq, &c.hash);
        if (r < 0)
                return r;
        count_unsigned(a, c.lines_n);
        mark_written(a->back, *at, end);
        if (c.n && sync == AUDIT_SYNC_EACH)
                r = audit_file_sync(&a->file);
        else if (c.n && sync == AUDIT_SYNC_BATCH && !a->sync_due_ns)
                a->sync_due_ns = clock_monotonic_ns() + SYNC_AFTER_NS;
        answer(a->back, *at, end, r);
        *at = end;
        return r;
}

static bool has_waiting(struct queue *q)
{
        for (size_t at = 0; at < q->used;)
                if (!next_entry(q, &at)->taken)
                        return true;
        return false;
}

/* Works off the back queue. On failure what nobody waits for stays in it. */
static int write_back(struct audit *a, enum audit_sync sync, bool stopping)
{
        size_t at = 0;
        int r = 0;

        while (at < a->back->used && r == 0) {
                r = write_chunk(a, sync, &at);
                if (r == 0)
                        r = write_due_checkpoint(a, sync, false);
        }
        if (r == 0 && a->sync_due_ns && (sync != AUDIT_SYNC_BATCH || clock_monotonic_ns() >= a->sync_due_ns)) {
                r = audit_file_sync(&a->file);
                if (r == 0)
                        a->sync_due_ns = 0;
        }
        if (r < 0)
                answer(a->back, at, a->back->used, r);
        if (!has_waiting(a->back))
                a->back->used = 0;
        return r < 0 ? r : write_due_checkpoint(a, sync, stopping);
}

/* Nothing of a failed batch may be left to try: then the disk itself is asked whether it is well again. */
static int try_again(struct audit *a, enum audit_sync sync, bool stopping)
{
        int r = has_waiting(a->back) ? 0 : audit_file_probe(&a->file);

        return r < 0 ? r : write_back(a, sync, stopping);
}

/* 0 is never. */
static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
        return a_ns == 0 || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

/* Under the lock: until there is something to do, or for RETRY_NS after a failure. */
static void wait_for_work(struct audit *a)
{
        uint64_t until_ns =
                a->failing ? clock_monotonic_ns() + RETRY_NS : earlier(a->sync_due_ns, a->checkpoint_due_ns);
        struct timespec ts = {.tv_sec = (time_t)(until_ns / NSEC_PER_SEC), .tv_nsec = (long)(until_ns % NSEC_PER_SEC)};

        while (!a->stopping && (a->failing || a->front->used == 0)) {
                int r = until_ns ? pthread_cond_timedwait(&a->wake, &a->lock, &ts)
                                 : pthread_cond_wait(&a->wake, &a->lock);

                if (r == ETIMEDOUT)
                        break;
        }
}

static void set_failing(struct audit *a, int r)
{
        if (r < 0 && !a->failing)
                log_errno(r, "the audit log cannot be written");
        else if (r == 0 && a->failing)
                log_warning("the audit log can be written again");
        a->failing = r < 0;
}

static void *run(void *userdata)
{
        struct audit *a = userdata;
        bool stopping = false;

        pthread_mutex_lock(&a->lock);
        while (!stopping || (a->front->used && !a->failing)) {
                bool was_failing;
                enum audit_sync sync;
                int r;

                wait_for_work(a);
                stopping = a->stopping;
                was_failing = a->failing;
                sync = stopping ? AUDIT_SYNC_EACH : a->sync;
                a->file.rotate_bytes = a->rotate_bytes;
                if (a->back->used == 0) {
                        struct queue *full = a->front;

                        a->front = a->back;
                        a->back = full;
                }
                pthread_mutex_unlock(&a->lock);
                r = was_failing ? try_again(a, sync, stopping) : write_back(a, sync, stopping);
                pthread_mutex_lock(&a->lock);
                set_failing(a, r);
        }
        pthread_mutex_unlock(&a->lock);
        return NULL;
}

static void audit_release(struct audit *a)
{
        audit_file_close(&a->file);
        close_fd(a->asker.sock);
        for (size_t i = 0; i < 2; i++)
                free(a->queues[i].bytes);
        free(a->chunk);
        pthread_cond_destroy(&a->wake);
        pthread_mutex_destroy(&a->lock);
        free(a);
}

static void init_lock(struct audit *a)
{
        pthread_condattr_t attributes;

        pthread_mutex_init(&a->lock, NULL);
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&a->wake, &attributes);
        pthread_condattr_destroy(&attributes);
}

int audit_new(const struct audit_options *options, struct audit **ret)
{
        struct audit *a = calloc(1, sizeof(*a));
        int r;

        if (!a) {
                close_fd(options->notary_fd);
                return -ENOMEM;
        }
        init_lock(a);
        a->required = options->required;
        a->sync = options->sync;
        a->rotate_bytes = options->rotate_bytes;
        a->asker.sock = options->notary_fd;
        a->front = &a->queues[0];
        a->back = &a->queues[1];
        a->chunk_room = CHUNK_BYTES;
        r = audit_file_open(&a->file, options->dir, options->rotate_bytes);
        if (r < 0)
                goto fail;
        a->chunk = malloc(a->chunk_room);
        a->queues[0].bytes = malloc(QUEUE_BYTES);
        a->queues[1].bytes = malloc(QUEUE_BYTES);
        r = -ENOMEM;
        if (!a->chunk || !a->queues[0].bytes || !a->queues[1].bytes)
                goto fail;
        r = -pthread_create(&a->thread, NULL, run, a);
        if (r < 0)
                goto fail;
        *ret = a;
        return 0;
fail:
        audit_release(a);
        return r;
}

void audit_free(struct audit *a)
{
        if (!a)
                return;
        pthread_mutex_lock(&a->lock);
        a->stopping = true;
        pthread_cond_signal(&a->wake);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
        /* Only a log that could not be written leaves anything; whoever waits still hears of it. */
        answer(a->back, 0, a->back->used, -EIO);
        answer(a->front, 0, a->front->used, -EIO);
        if (has_waiting(a->back) || has_waiting(a->front))
                log_error("audit records are lost: the log cannot be written");
        audit_release(a);
}

uint64_t audit_cut_bytes(const struct audit *a)
{
        return a->file.cut_bytes;
}

void audit_set_options(struct audit *a, const struct audit_options *options)
{
        pthread_mutex_lock(&a->lock);
        a->required = options->required;
        a->sync = options->sync;
        a->rotate_bytes = options->rotate_bytes;
        pthread_mutex_unlock(&a->lock);
}
