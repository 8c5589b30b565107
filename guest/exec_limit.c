/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "guest/exec_internal.h"

static void refuse(struct control *c, const char *detail)
{
        (void)control_send_error(c, "limit_unavailable", detail);
        control_finish(c);
}

static void tell(struct control *c, const struct cgroup_limits *limits)
{
        Wb__ExecLimits m = WB__EXEC_LIMITS__INIT;
        Wb__FromAgent answer = WB__FROM_AGENT__INIT;

        exec_limits_to_message(limits, &m);
        answer.body_case = WB__FROM_AGENT__BODY_EXEC_LIMITS;
        answer.exec_limits = &m;
        (void)control_send(c, &answer);
        control_finish(c);
}

/* What is asked for, over what there was; answers the bits of what is. */
static unsigned take_asked(const Wb__ExecLimit *m, struct cgroup_limits *limits)
{
        static const Wb__ExecLimits none = WB__EXEC_LIMITS__INIT;
        const Wb__ExecLimits *asked = m->limits ? m->limits : &none;

        if (m->memory_set)
                limits->memory_bytes = asked->memory_bytes;
        if (m->pids_set)
                limits->pids = asked->pids;
        if (m->cpu_set)
                limits->cpu_percent = asked->cpu_percent;
        if (m->io_set)
                limits->io_bps = asked->io_bps;
        return (m->memory_set ? CGROUP_LIMIT_MEMORY : 0) | (m->pids_set ? CGROUP_LIMIT_PIDS : 0) |
               (m->cpu_set ? CGROUP_LIMIT_CPU : 0) | (m->io_set ? CGROUP_LIMIT_IO : 0);
}

void exec_limits_to_message(const struct cgroup_limits *limits, Wb__ExecLimits *ret)
{
        ret->memory_bytes = limits->memory_bytes;
        ret->pids = limits->pids;
        ret->cpu_percent = limits->cpu_percent;
        ret->io_bps = limits->io_bps;
}

void exec_open_limit(struct exec_table *t, struct control *c, const Wb__ExecLimit *m)
{
        struct exec *x = exec_find_or_refuse(t, c, m->id);
        struct cgroup_limits to;
        const char *which;
        unsigned asked;

        if (!x)
                return;
        to = x->limits;
        asked = take_asked(m, &to);
        which = cgroup_missing(t->cgroups, &to);
        if (which) {
                char detail[96];

                (void)snprintf(detail, sizeof(detail), EXEC_NO_CONTROLLER, which);
                refuse(c, detail);
                return;
        }
        if (!x->has_cgroup) {
                if (x->state == EXEC_ENDED)
                        refuse(c, "nothing of this exec runs any more");
                else
                        tell(c, &x->limits); /* without cgroups: there was nothing to lift */
                return;
        }
        if (cgroup_limit(t->cgroups, x->id, asked, &to, &x->limits, &which) == CGROUP_E_REFUSED) {
                char detail[96];

                (void)snprintf(detail, sizeof(detail), EXEC_VALUE_REFUSED, which);
                refuse(c, detail);
                return;
        }
        x->limits = to;
        to = cgroup_limits_in_force(t->cgroups, x->id);
        tell(c, &to);
}
