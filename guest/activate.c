/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/activate.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/control.h"
#include "guest/exec.h"
#include "guest/filesystems_hold.h"
#include "guest/resume.h"
#include "guest/sentinel.h"
#include "guest/standstill.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

static struct report *current_report(struct activation *a)
{
        return &a->record->steps[a->step];
}

static void send_step(struct activation *a)
{
        struct report_message storage;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        if (!a->control)
                return;
        report_to_message(current_report(a), &storage);
        m.body_case = WB__FROM_AGENT__BODY_ACTIVATE_STEP;
        m.activate_step = &storage.step;
        (void)control_send(a->control, &m);
}

static void send_done(struct activation *a, bool ok)
{
        Wb__ActivateDone done = WB__ACTIVATE_DONE__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        if (!a->control)
                return;
        done.ok = ok;
        if (!ok)
                done.failed_step = (char *)(uintptr_t)activate_step_name(a->step);
        done.generation = a->generation;
        m.body_case = WB__FROM_AGENT__BODY_ACTIVATE_DONE;
        m.activate_done = &done;
        (void)control_send(a->control, &m);
        control_finish(a->control);
}

/* The end of the transaction, either way; a is gone after it. */
static void finish(struct activation *a, bool ok)
{
        struct agent *agent = a->agent;

        if (ok) {
                log_info("activated, generation %" PRIu64, a->generation);
                a->record->opened = true;
                standstill_end(agent->standstill);
                sentinel_post(agent->sentinel);
        } else {
                log_warning("activation %" PRIu64 " failed at %s: %s", a->generation, activate_step_name(a->step),
                        current_report(a)->detail);
                gate_set(&agent->gate, GATE_CLOSED);
                agent_set_secrets(agent, NULL);
                network_stop(agent->network);
                standstill_goes_on(agent->standstill, a->was_open);
        }
        a->record->ended_ns = clock_monotonic_ns();
        send_done(a, ok);
        agent->activation = NULL;
        activation_drop(a);
}

static void begin_step(struct activation *a)
{
        struct report *report = current_report(a);

        *report = (struct report){.name = activate_step_name(a->step)};
        a->record->steps_n = a->step + 1u;
        a->step_started_ns = clock_monotonic_ns();
}

static void end_step(struct activation *a, int r)
{
        struct report *report = current_report(a);

        report->ok = r == 0;
        report->duration_ns = clock_monotonic_ns() - a->step_started_ns;
        if (r < 0 && !report->detail[0])
                (void)report_errno(report, r, "failed");
        send_step(a);
}

/* Runs steps from the current one on, until one waits, one fails, or all are done. */
static void run(struct activation *a)
{
        for (;;) {
                int r;

                begin_step(a);
                r = activation_run_step(a, current_report(a));
                if (r == ACTIVATE_E_WAIT) {
                        a->waiting = true;
                        return;
                }
                end_step(a, r);
                if (r < 0 || a->step + 1 == ACTIVATE_STEPS) {
                        finish(a, r == 0);
                        return;
                }
                a->step++;
        }
}

void activation_step_done(struct activation *a, int r)
{
        assert(a->waiting && a->step + 1 < ACTIVATE_STEPS); /* the last step never waits */
        a->waiting = false;
        end_step(a, r);
        if (r < 0) {
                finish(a, false);
                return;
        }
        a->step++;
        run(a);
}

static void on_message(void *userdata, const Wb__ToAgent *m)
{
        struct activation *a = userdata;

        if (m->body_case == WB__TO_AGENT__BODY_CLOCK_SAMPLE && a->waiting && a->step == ACTIVATE_CLOCK) {
                activation_clock_sample(a, m->clock_sample);
                return;
        }
        report_detail(current_report(a), "the host said something else than was asked");
        activation_step_done(a, -EPROTO);
}

static void on_closed(void *userdata)
{
        struct activation *a = userdata;

        a->control = NULL;
        report_detail(current_report(a), "the host went away");
        activation_step_done(a, -EPIPE);
}

static const struct control_handler handler = {.message = on_message, .closed = on_closed};

void activate_abort(struct agent *agent, const char *why)
{
        struct activation *a = agent->activation;

        if (!a)
                return;
        report_detail(current_report(a), "%s", why);
        activation_step_done(a, -ECANCELED);
}

/* ---- opening */

static void refuse(struct control *c, const char *reason, const char *detail)
{
        (void)control_send_error(c, reason, detail);
        control_finish(c);
}

/* NULL, or why this activation is not to begin. An old one would bring back a seed that has been used and secrets that
 * were revoked. */
static const char *why_replayed(const struct activation_record *last, const Wb__Activate *m)
{
        if (m->generation <= last->generation)
                return "its generation is not greater than the last one's";
        if (last->nonce_set && m->nonce.len == sizeof(last->nonce) &&
                memcmp(last->nonce, m->nonce.data, m->nonce.len) == 0)
                return "its nonce has been used";
        return NULL;
}

static void record_begin(struct activation_record *record, const Wb__Activate *m)
{
        record->generation = m->generation;
        memcpy(record->nonce, m->nonce.data, sizeof(record->nonce));
        record->nonce_set = true;
        record->steps_n = 0;
}

void activate_open(struct agent *agent, struct control *c, const Wb__Activate *m)
{
        const char *why = why_replayed(agent->last, m);
        struct activation *a;
        int r;

        if (agent->activation) {
                refuse(c, "busy", "another activation is running");
                return;
        }
        if (why) {
                refuse(c, "replayed", why);
                return;
        }
        if (m->nonce.len != WB_NONCE_BYTES || m->seed.len != WB_SEED_BYTES) {
                refuse(c, "protocol", "a seed has 64 bytes, a nonce 16");
                return;
        }
        a = calloc(1, sizeof(*a));
        if (!a) {
                refuse(c, "no_memory", "no memory for the activation");
                return;
        }
        a->agent = agent;
        a->control = c;
        a->record = agent->last;
        r = activation_take(a, m);
        if (r < 0) {
                activation_drop(a);
                refuse(c, r == -EEXIST ? "protocol" : "no_memory",
                        r == -EEXIST ? "a secret is there twice" : "no memory for the activation");
                return;
        }
        record_begin(agent->last, m);
        control_set_handler(c, &handler, a);
        standstill_host_came(agent->standstill);
        resume_take_note(agent->resume);
        a->was_open = gate_is_open(&agent->gate);
        gate_set(&agent->gate, GATE_ACTIVATING);
        agent->activation = a;
        run(a);
}

/* Before a snapshot: nothing runs, nothing is secret, nothing is half written, nor will be before the next activation.
 */
void activate_quiesce(struct agent *agent, struct control *c)
{
        Wb__Ok ok = WB__OK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        int r;

        if (agent->activation) {
                refuse(c, "busy", "an activation is running");
                return;
        }
        r = standstill_begin(agent->standstill, STANDSTILL_QUIESCED);
        if (r < 0) {
                (void)log_errno(r, "cannot freeze the workloads");
                refuse(c, "freeze_failed", "the workloads cannot be frozen; the gate is closed");
                return;
        }
        r = filesystems_hold(agent);
        if (r == -ETIMEDOUT) {
                refuse(c, "freeze_failed", "the filesystems cannot be frozen; the gate is closed");
                return;
        }
        if (r < 0)
                (void)log_errno(r, "cannot freeze the filesystems");
        m.body_case = WB__FROM_AGENT__BODY_OK;
        m.ok = &ok;
        (void)control_send(c, &m);
        control_finish(c);
        log_info("quiesced");
}
