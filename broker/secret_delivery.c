/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/secret_delivery.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "broker/agent_dial.h"
#include "broker/secret_answer.h"
#include "broker/vm_secrets.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/client/client.h"

#define LIMIT_S 10 /* for one question, the dialling included */
#define REMOVED "the secret was removed meanwhile"

struct job {
        TAILQ_ENTRY(job) link;
        enum delivery_kind kind;
        char name[WB_SECRET_NAME_MAX + 1];
        bool was_kept;                   /* a revocation's: the broker gave it */
        struct control_request *request; /* NULL: nobody waits */
};

/* Exists while a VM has jobs. Bounded by the control's peers, each with one request, and by the secrets that expire. */
struct secret_delivery {
        struct vm_entry *entry;
        TAILQ_HEAD(job_list, job) jobs; /* the first is under way while there is a client, or dialling */
        bool talking;
        struct agent_dial dial;
        struct client *client;
        struct event *limit; /* of the question under way */
        struct event *turn;  /* the next job's, from the loop */
        uint64_t version;    /* of the value that a put has sent */
};

static void stop_talking(struct secret_delivery *d)
{
        d->talking = false;
        agent_dial_done(&d->dial);
        client_free(d->client);
        d->client = NULL;
        (void)event_del(d->limit);
}

static void delivery_free(struct secret_delivery *d)
{
        d->entry->delivery = NULL;
        stop_talking(d);
        event_free(d->limit);
        event_free(d->turn);
        free(d);
}

/* ---- how one ends */

static void finish(struct secret_delivery *d, json_t *answer)
{
        struct job *job = TAILQ_FIRST(&d->jobs);

        stop_talking(d);
        TAILQ_REMOVE(&d->jobs, job, link);
        if (job->request)
                control_answer(job->request, answer);
        else
                json_decref(answer);
        free(job);
        event_active(d->turn, EV_TIMEOUT, 0);
}

/* The guest could not be told; what the broker keeps stays so. */
static void fail(struct secret_delivery *d, enum reason reason, const char *why)
{
        const struct job *job = TAILQ_FIRST(&d->jobs);
        struct vm_entry *e = d->entry;

        if (job->kind != DELIVERY_LIST)
                log_warning("VM '%s': secret '%s' is not %s the guest: %s", e->config.name, job->name,
                        job->kind == DELIVERY_PUT ? "given to" : "revoked in", why);
        switch (job->kind) {
        case DELIVERY_PUT: finish(d, secret_answer_not_given(reason, why)); return;
        case DELIVERY_REVOKE: finish(d, secret_answer_not_revoked(why)); return;
        case DELIVERY_LIST: finish(d, secret_answer_list(e, NULL, why)); return;
        }
}

static void on_limit(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        fail(userdata, REASON_ALLOWED, "the agent did not answer in time");
}

/* ---- what the agent says */

/*
 * Its reason, if it is one of those that it has for this: a text of a hostile guest's own making may spell the secret,
 * and this one goes to the log.
 */
static const char *known_reason(const char *reason)
{
        static const char *const known[] = {
                "bad_request", "busy", "internal", "not_ready", "secret_expired", "secret_unknown"};

        for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
                if (strcmp(known[i], reason) == 0)
                        return known[i];
        return "something that is no reason";
}

static void finish_revoked(struct secret_delivery *d, bool was_there)
{
        struct secret_store *store = vm_secrets_store(d->entry);
        const char *name = TAILQ_FIRST(&d->jobs)->name;

        if (store)
                secret_store_taken(store, name);
        finish(d, was_there ? answer_ok() : secret_answer_absent(d->entry, name));
}

static void take_error(struct secret_delivery *d, const char *reason)
{
        const struct job *job = TAILQ_FIRST(&d->jobs);
        const char *known = known_reason(reason);
        bool is_closed = strcmp(known, "not_ready") == 0;

        if (job->kind == DELIVERY_REVOKE && strncmp(known, "secret_", 7) == 0)
                finish_revoked(d, job->was_kept);
        else if (job->kind == DELIVERY_REVOKE && job->was_kept && is_closed) /* nothing runs until it has all anew */
                finish(d, answer_ok());
        else if (is_closed)
                fail(d, REASON_NOT_READY, "its gate is closed");
        else
                fail(d, REASON_ALLOWED, known);
}

static void take_ok(struct secret_delivery *d)
{
        const struct job *job = TAILQ_FIRST(&d->jobs);

        if (job->kind != DELIVERY_PUT) {
                finish_revoked(d, true);
                return;
        }
        secret_store_given(vm_secrets_store(d->entry), job->name, d->version);
        finish(d, secret_answer_put(true));
}

static void on_message(void *userdata, const Wb__FromAgent *m)
{
        struct secret_delivery *d = userdata;
        bool is_list = TAILQ_FIRST(&d->jobs)->kind == DELIVERY_LIST;

        if (m->body_case == WB__FROM_AGENT__BODY_ERROR)
                take_error(d, m->error->reason);
        else if (!is_list && m->body_case == WB__FROM_AGENT__BODY_OK)
                take_ok(d);
        else if (is_list && m->body_case == WB__FROM_AGENT__BODY_SECRET_ENTRIES)
                finish(d, secret_answer_list(d->entry, m->secret_entries, NULL));
        else
                fail(d, REASON_ALLOWED, "the agent does not keep to the protocol");
}

static void on_closed(void *userdata, int error)
{
        (void)error;
        fail(userdata, REASON_ALLOWED, "the agent closed the conversation");
}

/* ---- what it is told */

static void send_put(struct secret_delivery *d, const char *name)
{
        struct stored_secret *secret = secret_store_find(vm_secrets_store(d->entry), name);
        Wb__SecretPut put = WB__SECRET_PUT__INIT;
        Wb__Secret message;
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        struct refusal refusal;

        if (!secret || !secret->value.bytes) {
                finish(d, answer_error(REMOVED));
                return;
        }
        if (vm_secrets_record_use(d->entry, d->entry->generation, name, &refusal) < 0) {
                fail(d, refusal.reason, refusal.message);
                return;
        }
        vm_secrets_message(secret, &message);
        put.secret = &message;
        m.body_case = WB__TO_AGENT__BODY_SECRET_PUT;
        m.secret_put = &put;
        d->version = secret->version;
        secret_store_sent(secret);
        if (client_send(d->client, &m) < 0)
                fail(d, REASON_ALLOWED, "no memory");
}

static void send_question(struct secret_delivery *d, struct job *job)
{
        Wb__SecretRevoke revoke = WB__SECRET_REVOKE__INIT;
        Wb__SecretList list = WB__SECRET_LIST__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        if (job->kind == DELIVERY_REVOKE) {
                revoke.name = job->name;
                m.body_case = WB__TO_AGENT__BODY_SECRET_REVOKE;
                m.secret_revoke = &revoke;
        } else {
                m.body_case = WB__TO_AGENT__BODY_SECRET_LIST;
                m.secret_list = &list;
        }
        if (client_send(d->client, &m) < 0)
                fail(d, REASON_ALLOWED, "no memory");
}

static void on_dialled(void *userdata, int result)
{
        static const struct client_handler handler = {.message = on_message, .closed = on_closed};
        struct secret_delivery *d = userdata;
        struct job *job = TAILQ_FIRST(&d->jobs);

        if (result < 0)
                fail(d, REASON_ALLOWED, agent_dial_fault(result));
        else if (client_new(d->entry->registry->base, result, &handler, d, &d->client) < 0)
                fail(d, REASON_ALLOWED, "no memory");
        else if (job->kind == DELIVERY_PUT)
                send_put(d, job->name);
        else
                send_question(d, job);
}

static void talk(struct secret_delivery *d)
{
        const struct timeval limit = {.tv_sec = LIMIT_S};

        d->talking = true;
        if (agent_dial_init(&d->dial, d->entry, on_dialled, d) < 0 || event_add(d->limit, &limit) < 0)
                fail(d, REASON_ALLOWED, "no memory");
        else
                agent_dial_start(&d->dial);
}

/* ---- one after the other */

/* The answer of what need not be said to the guest, or not any more; NULL: it is to be said. */
static json_t *answer_unsaid(struct vm_entry *e, const struct job *job)
{
        struct secret_store *store = vm_secrets_store(e);
        const struct stored_secret *secret = store ? secret_store_find(store, job->name) : NULL;
        bool is_kept = secret && secret->value.bytes;
        /* A guest whose egress was revoked runs on, and gets nothing new. */
        bool has_guest = e->config.agent && (e->state == VM_OPEN || (e->state == VM_REVOKED && e->generation));

        switch (job->kind) {
        case DELIVERY_PUT:
                if (!is_kept)
                        return answer_error(REMOVED);
                if (secret->in_guest == SECRET_HELD)
                        return secret_answer_put(true);
                return e->state == VM_OPEN ? NULL : secret_answer_put(false);
        case DELIVERY_REVOKE:
                if (is_kept || (job->was_kept && !secret)) /* put again, and that comes next; or all was wiped */
                        return answer_ok();
                return secret || has_guest ? NULL : secret_answer_absent(e, job->name);
        case DELIVERY_LIST: return has_guest ? NULL : secret_answer_list(e, NULL, NULL);
        }
        return NULL;
}

static void on_turn(evutil_socket_t fd, short events, void *userdata)
{
        struct secret_delivery *d = userdata;
        struct job *job = TAILQ_FIRST(&d->jobs);
        json_t *answer;

        (void)fd;
        (void)events;
        if (!job) {
                delivery_free(d);
                return;
        }
        if (d->talking || d->entry->conversation)
                return;
        answer = answer_unsaid(d->entry, job);
        if (answer)
                finish(d, answer);
        else
                talk(d);
}

static struct secret_delivery *delivery_of(struct vm_entry *e)
{
        struct secret_delivery *d = e->delivery;

        if (d)
                return d;
        d = calloc(1, sizeof(*d));
        if (!d)
                return NULL;
        d->entry = e;
        TAILQ_INIT(&d->jobs);
        d->limit = event_new(e->registry->base, -1, 0, on_limit, d);
        d->turn = event_new(e->registry->base, -1, 0, on_turn, d);
        if (!d->limit || !d->turn) {
                if (d->limit)
                        event_free(d->limit);
                free(d);
                return NULL;
        }
        e->delivery = d;
        return d;
}

void secret_delivery_start(
        struct vm_entry *e, enum delivery_kind kind, const char *name, struct control_request *request)
{
        struct secret_delivery *d = delivery_of(e);
        struct job *job = d ? calloc(1, sizeof(*job)) : NULL;

        if (!job) {
                log_error("VM '%s': no memory to speak of a secret with its guest", e->config.name);
                if (request)
                        control_answer(request, answer_error("no memory"));
                secret_delivery_resume(e);
                return;
        }
        job->kind = kind;
        job->request = request;
        if (name)
                memcpy(job->name, name, strnlen(name, sizeof(job->name) - 1));
        job->was_kept = kind == DELIVERY_REVOKE && e->secrets && secret_store_find(vm_secrets_store(e), job->name);
        TAILQ_INSERT_TAIL(&d->jobs, job, link);
        event_active(d->turn, EV_TIMEOUT, 0);
}

void secret_delivery_pause(struct vm_entry *e)
{
        if (e->delivery)
                stop_talking(e->delivery);
}

void secret_delivery_resume(struct vm_entry *e)
{
        if (e->delivery)
                event_active(e->delivery->turn, EV_TIMEOUT, 0);
}

void secret_delivery_cancel(struct vm_entry *e)
{
        struct secret_delivery *d = e->delivery;

        if (!d)
                return;
        stop_talking(d);
        while (!TAILQ_EMPTY(&d->jobs))
                finish(d, answer_error("the VM was removed or revoked meanwhile"));
        delivery_free(d);
}
