/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/opening.h"

#include <errno.h>

#include "guest/activate.h"
#include "guest/agent.h"
#include "guest/clock_watch.h"
#include "guest/exec.h"
#include "guest/files.h"
#include "guest/forward.h"
#include "guest/info.h"
#include "guest/memory_talk.h"
#include "guest/resume.h"
#include "guest/secret_talk.h"
#include "guest/sentinel.h"

static void take_info(struct control *c)
{
        (void)info_send(c);
        control_finish(c);
}

static void take_shutdown(struct control *c, const Wb__Shutdown *m)
{
        Wb__Ok ok = WB__OK__INIT;
        Wb__FromAgent answer = WB__FROM_AGENT__INIT;

        answer.body_case = WB__FROM_AGENT__BODY_OK;
        answer.ok = &ok;
        (void)control_send(c, &answer);
        control_finish(c);
        agent_end_soon(
                control_agent(c), m->kind == WB__SHUTDOWN__KIND__REBOOT ? AGENT_END_REBOOT : AGENT_END_POWER_OFF);
}

/* What may be done only in a guest that is in order; refuses it else. */
static bool is_ready(struct control *c)
{
        if (gate_is_open(&control_agent(c)->gate))
                return true;
        (void)control_send_error(c, "not_ready", "the guest is not activated");
        control_finish(c);
        return false;
}

static void take_exec(struct control *c, const Wb__ExecStart *m)
{
        if (is_ready(c))
                exec_open_start(control_agent(c)->execs, c, m);
}

static void take_files(struct control *c, const Wb__ToAgent *m)
{
        if (is_ready(c))
                files_open(control_agent(c)->files, c, m);
}

static void take_secret(struct control *c, const Wb__ToAgent *m)
{
        if (!is_ready(c))
                return;
        if (m->body_case == WB__TO_AGENT__BODY_SECRET_PUT)
                secret_talk_put(c, m->secret_put);
        else if (m->body_case == WB__TO_AGENT__BODY_SECRET_REVOKE)
                secret_talk_revoke(c, m->secret_revoke);
        else
                secret_talk_list(c);
}

static void take_clock(struct control *c)
{
        if (is_ready(c))
                clock_watch_open(control_agent(c)->clock, c);
}

static void take_forward(struct control *c, const Wb__Forward *m)
{
        if (is_ready(c))
                forward_open(control_agent(c)->forwards, c, m);
}

int opening_take(struct control *c, const Wb__ToAgent *m)
{
        struct agent *agent = control_agent(c);

        sentinel_look(agent->sentinel); /* both before a clone does what it must not */
        resume_look(agent->resume);
        switch (m->body_case) {
        case WB__TO_AGENT__BODY_INFO: take_info(c); return 0;
        case WB__TO_AGENT__BODY_ACTIVATE: activate_open(agent, c, m->activate); return 0;
        case WB__TO_AGENT__BODY_QUIESCE: activate_quiesce(agent, c); return 0;
        case WB__TO_AGENT__BODY_SHUTDOWN: take_shutdown(c, m->shutdown); return 0;
        case WB__TO_AGENT__BODY_EXEC_START: take_exec(c, m->exec_start); return 0;
        case WB__TO_AGENT__BODY_EXEC_ATTACH: exec_open_attach(agent->execs, c, m->exec_attach); return 0;
        case WB__TO_AGENT__BODY_EXEC_KILL: exec_open_kill(agent->execs, c, m->exec_kill); return 0;
        case WB__TO_AGENT__BODY_EXEC_LIST: exec_open_list(agent->execs, c); return 0;
        case WB__TO_AGENT__BODY_EXEC_LIMIT: exec_open_limit(agent->execs, c, m->exec_limit); return 0;
        case WB__TO_AGENT__BODY_MEMORY_RESIZE: memory_talk_resize(c, m->memory_resize); return 0;
        case WB__TO_AGENT__BODY_FILE_STAT:
        case WB__TO_AGENT__BODY_FILE_LIST:
        case WB__TO_AGENT__BODY_FILE_MKDIR:
        case WB__TO_AGENT__BODY_FILE_REMOVE:
        case WB__TO_AGENT__BODY_FILE_RENAME:
        case WB__TO_AGENT__BODY_FILE_GET:
        case WB__TO_AGENT__BODY_FILE_PUT:
        case WB__TO_AGENT__BODY_FILE_WATCH:
        case WB__TO_AGENT__BODY_SYNC: take_files(c, m); return 0;
        case WB__TO_AGENT__BODY_SECRET_PUT:
        case WB__TO_AGENT__BODY_SECRET_REVOKE:
        case WB__TO_AGENT__BODY_SECRET_LIST: take_secret(c, m); return 0;
        case WB__TO_AGENT__BODY_CLOCK_CHECK: take_clock(c); return 0;
        case WB__TO_AGENT__BODY_FORWARD: take_forward(c, m->forward); return 0;
        case WB__TO_AGENT__BODY_EXEC_START_MORE:
        case WB__TO_AGENT__BODY_INPUT:
        case WB__TO_AGENT__BODY_CREDIT:
        case WB__TO_AGENT__BODY_SIGNAL:
        case WB__TO_AGENT__BODY_RESIZE:
        case WB__TO_AGENT__BODY_CLOCK_SAMPLE:
        case WB__TO_AGENT__BODY_FILE_ENTRY:
        case WB__TO_AGENT__BODY_FILE_DATA:
        case WB__TO_AGENT__BODY_FILE_END:
        case WB__TO_AGENT__BODY__NOT_SET:
        case _WB__TO_AGENT__BODY__CASE_IS_INT_SIZE: break;
        }
        return -EPROTO;
}
