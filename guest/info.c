/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "guest/activation.h"
#include "guest/agent.h"
#include "guest/clock.h"
#include "guest/clock_watch.h"
#include "guest/control.h"
#include "guest/exec.h"
#include "guest/memory.h"
#include "guest/network.h"
#include "guest/resume.h"
#include "guest/secret.h"
#include "guest/standstill.h"
#include "guest/statistics.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

/* What this kernel and image have, for `wbctl info`. */
enum fact {
        FACT_KERNEL,
        FACT_CONTROLLERS,
        FACT_PTP,
        FACT_VMGENID,
        FACT_VMCLOCK,
        FACT_FORWARDER,
        FACT_SECRETS,
        FACT_RESUME_WATCH,
        FACT_RESUMES,
        FACT_STANDSTILL,
        FACT_CLOCK,
        FACT_ACTIVATED,
        FACTS,
};

struct facts {
        Wb__Fact facts[FACTS];
        Wb__Fact *pointers[FACTS];
        char texts[FACTS][160];
        size_t n;
};

static void add(struct facts *f, const char *name, const char *value)
{
        Wb__Fact *fact = &f->facts[f->n];

        *fact = (Wb__Fact)WB__FACT__INIT;
        (void)snprintf(f->texts[f->n], sizeof(f->texts[f->n]), "%s", value);
        fact->name = (char *)(uintptr_t)name;
        fact->value = f->texts[f->n];
        f->pointers[f->n++] = fact;
}

static void add_controllers(struct facts *f)
{
        _cleanup_free_ char *text = NULL;

        if (io_read_file("/sys/fs/cgroup/cgroup.controllers", 4096, &text, NULL) < 0) {
                add(f, "cgroup_controllers", "no cgroup v2");
                return;
        }
        text[strcspn(text, "\n")] = '\0';
        add(f, "cgroup_controllers", text[0] ? text : "none");
}

static void add_ptp(struct facts *f)
{
        char name[CLOCK_PTP_NAME_BYTES];
        struct clock_offset offset;

        add(f, "ptp_kvm", clock_read_ptp(&offset, name) == 0 ? name : "no");
}

static void add_activated(const struct activation_record *last, struct facts *f)
{
        char text[48] = "never";

        if (last->ended_ns)
                (void)snprintf(text, sizeof(text), "%.1f s ago", (double)(clock_monotonic_ns() - last->ended_ns) / 1e9);
        add(f, "last_activation", text);
}

static void add_standstill(const struct agent *agent, struct facts *f)
{
        char clock[160], sources[64], seen[64], standstill[64];

        resume_describe(agent->resume, sources, sizeof(sources), seen, sizeof(seen));
        standstill_describe(agent->standstill, standstill, sizeof(standstill));
        add(f, "resume_watch", sources);
        add(f, "resumes_unannounced", seen);
        add(f, "standstill", standstill);
        clock_watch_describe(agent->clock, clock, sizeof(clock));
        add(f, "clock_check", clock);
        add_activated(agent->last, f);
}

static void gather(struct agent *agent, struct facts *f)
{
        struct utsname u;
        char secrets[32];

        f->n = 0;
        add(f, "kernel", uname(&u) == 0 ? u.release : "unknown");
        add_controllers(f);
        add_ptp(f);
        add(f, "vmgenid", resume_has_vmgenid() ? "driver" : "no");
        add(f, "vmclock", access("/dev/vmclock0", F_OK) == 0 ? "yes" : "no");
        add(f, "forwarder", network_forwarder_state(agent->network));
        (void)snprintf(secrets, sizeof(secrets), "%zu", secret_count(agent->secrets));
        add(f, "secrets", secrets);
        add_standstill(agent, f);
}

int info_send(struct control *c)
{
        _cleanup_free_ struct statistics *statistics = malloc(sizeof(*statistics));
        _cleanup_free_ struct memory_message *memory = malloc(sizeof(*memory));
        struct agent *agent = control_agent(c);
        struct report_message steps[ACTIVATE_STEPS];
        Wb__ActivateStep *step_pointers[ACTIVATE_STEPS];
        struct facts facts;
        Wb__Info info = WB__INFO__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        gather(agent, &facts);
        for (size_t i = 0; i < agent->last->steps_n; i++) {
                report_to_message(&agent->last->steps[i], &steps[i]);
                step_pointers[i] = &steps[i].step;
        }
        info.version = (char *)(uintptr_t)WB_VERSION;
        info.state = (char *)(uintptr_t)gate_state_name(agent->gate.state);
        info.generation = agent->last->generation;
        info.pid1 = agent->pid1;
        info.uptime_ns = clock_monotonic_ns() - agent->started_ns;
        info.execs_running = exec_table_running(agent->execs);
        info.n_last_activation = agent->last->steps_n;
        info.last_activation = step_pointers;
        info.n_facts = facts.n;
        info.facts = facts.pointers;
        if (statistics) {
                statistics_gather(agent->execs, statistics);
                info.statistics = &statistics->message;
        }
        if (memory) {
                memory_limits(agent->memory, memory);
                info.memory_limits = &memory->limits;
        }
        m.body_case = WB__FROM_AGENT__BODY_INFO;
        m.info = &info;
        return control_send(c, &m);
}
