/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/activation.h"
#include "guest/agent.h"
#include "guest/clock_watch.h"
#include "guest/control.h"
#include "guest/entropy.h"
#include "guest/exec.h"
#include "guest/files.h"
#include "guest/filesystems_hold.h"
#include "guest/forward.h"
#include "guest/memory.h"
#include "guest/resume.h"
#include "guest/sentinel.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

/* ---- freeze, thaw, gate */

/* Those that were frozen for the snapshot, once the workloads are: the steps that follow write files. */
static void thaw_filesystems(struct agent *agent, struct report *report)
{
        unsigned n = filesystems_release(agent);

        if (n)
                report_fact(report, "filesystems_thawed", "%u", n);
}

static int run_freeze(struct activation *a, struct report *report)
{
        int r;

        sentinel_withdraw(a->agent->sentinel);
        network_stop(a->agent->network); /* connections of the life before lead nowhere */
        forwards_stop(a->agent->forwards);
        files_stop(a->agent->files);
        r = exec_table_freeze(a->agent->execs);
        thaw_filesystems(a->agent, report);
        if (r == -EOPNOTSUPP) {
                report_fact(report, "method", "none");
                report_detail(
                        report, "no cgroups here: %u running commands go on", exec_table_running(a->agent->execs));
                return 0;
        }
        if (r < 0)
                return report_errno(report, r, "freezing the workloads");
        report_fact(report, "method", "cgroup");
        report_fact(report, "execs", "%u", exec_table_running(a->agent->execs));
        report_detail(report, "workloads are frozen");
        return 0;
}

static int run_thaw(struct activation *a, struct report *report)
{
        int r;

        if (resume_came_meanwhile(a->agent->resume)) {
                report_detail(report, "the machine was resumed meanwhile");
                return -ECANCELED;
        }
        memory_look(a->agent->memory); /* what was sized by another machine's memory */
        memory_report(a->agent->memory, report);
        r = exec_table_thaw(a->agent->execs);
        if (r == -EOPNOTSUPP) {
                report_detail(report, "nothing was frozen");
                return 0;
        }
        if (r < 0)
                return report_errno(report, r, "thawing the workloads");
        report_detail(report, "workloads run");
        return 0;
}

static int run_gate(struct activation *a, struct report *report)
{
        gate_set(&a->agent->gate, GATE_OPEN);
        report_detail(report, "commands are accepted");
        return 0;
}

/* ---- entropy */

static int run_entropy(struct activation *a, struct report *report)
{
        int r = entropy_add(a->seed, a->seed_n, a->agent->transport.kind != TRANSPORT_UNIX, report);

        explicit_bzero(a->seed, sizeof(a->seed));
        return r;
}

/* ---- clock */

static int apply_clock(
        struct activation *a, const struct clock_offset *offset, const char *source, struct report *report)
{
        int r = clock_apply(offset, source, report);

        if (r == 0)
                clock_watch_begin(a->agent->clock, offset);
        return r;
}

static int run_clock(struct activation *a, struct report *report)
{
        char name[CLOCK_PTP_NAME_BYTES], source[CLOCK_PTP_NAME_BYTES + 16];
        struct clock_offset offset;
        int r;

        if (!a->set_clock) {
                report_fact(report, "source", "host");
                report_detail(report, "left alone: it is the host's own");
                return 0;
        }
        r = clock_read_ptp(&offset, name);
        if (r == 0) {
                (void)snprintf(source, sizeof(source), "ptp_kvm %s", name);
                return apply_clock(a, &offset, source, report);
        }
        if (r != -ENODEV)
                report_fact(report, "ptp_kvm", "%s", strerrordesc_np(-r));
        r = clock_talk_start(&a->talk, a->control);
        return r < 0 ? report_errno(report, r, "asking the host for the time") : ACTIVATE_E_WAIT;
}

static void on_measured(void *userdata, int r, const struct clock_offset *best)
{
        struct activation *a = userdata;
        struct report *report = &a->record->steps[a->step];

        if (r == 0)
                r = apply_clock(a, best, "exchanges", report);
        else
                report_detail(report, "%s", clock_talk_fault(r));
        activation_step_done(a, r);
}

void activation_clock_sample(struct activation *a, const Wb__ClockSample *m)
{
        clock_talk_sample(&a->talk, m);
}

/* ---- identity, secrets, network */

static int run_identity(struct activation *a, struct report *report)
{
        return identity_set(a->hostname, a->generation, a->id, report);
}

static int run_secrets(struct activation *a, struct report *report)
{
        size_t n = secret_count(a->secrets);

        report_fact(report, "count", "%zu", n);
        if (n)
                report_fact(report, "memory", "%s", secret_memory_name(secret_memory_kind(a->secrets)));
        report_detail(report, "%zu secret%s", n, n == 1 ? "" : "s");
        agent_set_secrets(a->agent, STEAL(a->secrets));
        return 0;
}

static int run_network(struct activation *a, struct report *report)
{
        if (!a->has_network)
                return network_resume(a->agent->network, report);
        return network_apply(a->agent->network, &a->network, report);
}

/* ---- notify */

static void free_env(char ***env)
{
        network_free_env(*env);
}

/* What hooks get: where they are in the machine's life, and the way out that workloads will have. */
static int make_hooks_env(struct activation *a, char ***ret)
{
        _cleanup_(free_env) char **env = NULL;
        char **from = a->agent->workload_env;
        size_t n = 0, from_n = 0;

        while (from && from[from_n])
                from_n++;
        env = calloc(from_n + 4, sizeof(*env));
        if (!env || !(env[n] = strdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")))
                return -ENOMEM;
        n++;
        if (asprintf(&env[n], "WB_GENERATION=%" PRIu64, a->generation) < 0) {
                env[n] = NULL;
                return -ENOMEM;
        }
        n++;
        if (asprintf(&env[n], "WB_GENERATION_ID=%s", a->id) < 0) {
                env[n] = NULL;
                return -ENOMEM;
        }
        n++;
        for (size_t i = 0; i < from_n; i++, n++)
                if (!(env[n] = strdup(from[i])))
                        return -ENOMEM;
        *ret = STEAL(env);
        return 0;
}

static void on_hooks_done(void *userdata, int r)
{
        activation_step_done(userdata, r);
}

static int run_notify(struct activation *a, struct report *report)
{
        int r = make_hooks_env(a, &a->hooks_env);

        if (r < 0)
                return report_errno(report, r, "the environment of hooks");
        r = hooks_start(&a->hooks, a->agent, a->hooks_env, report, on_hooks_done, a);
        if (r == 0)
                report_detail(report, "no hooks in " HOOKS_DIR);
        return r == HOOKS_E_RUNNING ? ACTIVATE_E_WAIT : r;
}

/* ---- the table */

static const struct {
        const char *name;
        int (*run)(struct activation *a, struct report *report);
} steps[] = {
        [ACTIVATE_FREEZE] = {"freeze", run_freeze},
        [ACTIVATE_ENTROPY] = {"entropy", run_entropy},
        [ACTIVATE_CLOCK] = {"clock", run_clock},
        [ACTIVATE_IDENTITY] = {"identity", run_identity},
        [ACTIVATE_SECRETS] = {"secrets", run_secrets},
        [ACTIVATE_NETWORK] = {"network", run_network},
        [ACTIVATE_NOTIFY] = {"notify", run_notify},
        [ACTIVATE_THAW] = {"thaw", run_thaw},
        [ACTIVATE_GATE] = {"gate", run_gate},
};
static_assert(sizeof(steps) / sizeof(steps[0]) == ACTIVATE_STEPS, "a row for each step");

const char *activate_step_name(enum activate_step step)
{
        return steps[step].name;
}

int activation_run_step(struct activation *a, struct report *report)
{
        return steps[a->step].run(a, report);
}

/* ---- what of the message is kept */

static int take_network(struct activation *a, const Wb__Network *m)
{
        a->has_network = true;
        a->network.egress = m->egress;
        for (size_t i = 0; i < m->n_ports && a->network.ports_n < LISTENERS_PORTS_MAX; i++)
                if (m->ports[i] > 0 && m->ports[i] <= UINT16_MAX)
                        a->network.ports[a->network.ports_n++] = (uint16_t)m->ports[i];
        a->network.ca = calloc(m->n_ca_pem + 1, sizeof(*a->network.ca));
        if (!a->network.ca)
                return -ENOMEM;
        for (size_t i = 0; i < m->n_ca_pem; i++) {
                struct network_pem *pem = &a->network.ca[i];

                pem->bytes = malloc(m->ca_pem[i].len + 1);
                if (!pem->bytes)
                        return -ENOMEM;
                if (m->ca_pem[i].len)
                        memcpy(pem->bytes, m->ca_pem[i].data, m->ca_pem[i].len);
                pem->n = m->ca_pem[i].len;
                a->network.ca_n++;
        }
        return 0;
}

int activation_take(struct activation *a, const Wb__Activate *m)
{
        int r;

        clock_talk_init(&a->talk, a->agent->base, on_measured, a);
        assert(m->seed.len <= sizeof(a->seed) && strlen(m->hostname) < sizeof(a->hostname)); /* the codec's bounds */
        memcpy(a->seed, m->seed.data, m->seed.len);
        a->seed_n = m->seed.len;
        a->generation = m->generation;
        memcpy(a->hostname, m->hostname, strlen(m->hostname) + 1);
        a->set_clock = m->set_clock;
        r = secret_store_new(m->secrets, m->n_secrets, clock_monotonic_ns(), &a->secrets);
        if (r < 0 || !m->network)
                return r;
        return take_network(a, m->network);
}

void activation_drop(struct activation *a)
{
        clock_talk_stop(&a->talk);
        hooks_stop(&a->hooks);
        network_free_env(a->hooks_env);
        secret_store_free(a->secrets);
        for (size_t i = 0; i < a->network.ca_n; i++)
                free(a->network.ca[i].bytes);
        free(a->network.ca);
        explicit_bzero(a->seed, sizeof(a->seed));
        free(a);
}
