/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/serve.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "guest/activate.h"
#include "guest/agent.h"
#include "guest/child.h"
#include "guest/clock_watch.h"
#include "guest/control_server.h"
#include "guest/exec.h"
#include "guest/files.h"
#include "guest/filesystems_hold.h"
#include "guest/forward.h"
#include "guest/identity.h"
#include "guest/memory.h"
#include "guest/network.h"
#include "guest/opening.h"
#include "guest/resume.h"
#include "guest/self.h"
#include "guest/sentinel.h"
#include "guest/standstill.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/* ---- signals */

static void on_child(evutil_socket_t signal_number, short events, void *userdata)
{
        struct agent *agent = userdata;

        (void)signal_number;
        (void)events;
        for (;;) {
                struct rusage usage;
                int status;
                pid_t pid = wait4(-1, &status, WNOHANG, &usage);

                if (pid < 0 && errno == EINTR)
                        continue;
                if (pid <= 0)
                        return;
                if (!child_reaped(agent, pid, status))
                        (void)exec_table_reaped(agent->execs, pid, status, &usage);
        }
}

static void on_exit_signal(evutil_socket_t signal_number, short events, void *userdata)
{
        (void)signal_number;
        (void)events;
        agent_end_soon(userdata, AGENT_END_EXIT);
}

static void on_power_off_signal(evutil_socket_t signal_number, short events, void *userdata)
{
        (void)signal_number;
        (void)events;
        agent_end_soon(userdata, AGENT_END_POWER_OFF);
}

static void on_reboot_signal(evutil_socket_t signal_number, short events, void *userdata)
{
        (void)signal_number;
        (void)events;
        agent_end_soon(userdata, AGENT_END_REBOOT);
}

/* For PID 1: SIGINT is Ctrl-Alt-Del (init_prepare()), SIGPWR a power failure or a VMM's stop. */
static const struct {
        int number;
        event_callback_fn service, init;
} signals[] = {
        {SIGCHLD, on_child, on_child},
        {SIGTERM, on_exit_signal, on_power_off_signal},
        {SIGINT, on_exit_signal, on_reboot_signal},
        {SIGPWR, NULL, on_power_off_signal},
};

static int watch_signals(struct agent *agent)
{
        static_assert(
                sizeof(signals) / sizeof(signals[0]) <= sizeof(agent->signals) / sizeof(agent->signals[0]), "room");

        for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
                event_callback_fn fn = agent->pid1 ? signals[i].init : signals[i].service;

                if (!fn)
                        continue;
                agent->signals[i] = evsignal_new(agent->base, signals[i].number, fn, agent);
                if (!agent->signals[i] || event_add(agent->signals[i], NULL) < 0)
                        return -ENOMEM;
        }
        return 0;
}

/* ---- life */

static struct event_base *new_base(void)
{
        struct event_config *config = event_config_new();
        struct event_base *base = NULL;

        if (!config)
                return NULL;
        if (event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0)
                base = event_base_new_with_config(config);
        event_config_free(config);
        return base;
}

static void on_ending(evutil_socket_t fd, short events, void *userdata)
{
        struct agent *agent = userdata;

        (void)fd;
        (void)events;
        (void)event_base_loopbreak(agent->base);
}

static int set_up_loop(struct agent *agent)
{
        agent->base = new_base();
        if (!agent->base)
                return -ENOMEM;
        agent->secrets_timer = evtimer_new(agent->base, agent_on_expiry, agent);
        agent->ending = evtimer_new(agent->base, on_ending, agent);
        agent->last = calloc(1, sizeof(*agent->last));
        if (!agent->secrets_timer || !agent->ending || !agent->last)
                return -ENOMEM;
        agent->last->generation = identity_last_generation();
        return watch_signals(agent);
}

static int set_up(struct agent *agent, const struct serve_config *config)
{
        int fd, r = set_up_loop(agent);

        if (r < 0)
                return log_errno(r, "cannot set up the loop");
        r = standstill_watch_new(agent, config->host_gone, config->host_gone_ms, &agent->standstill);
        if (r == 0)
                r = resume_watch_new(agent, config->vmclock_path, &agent->resume);
        if (r == 0)
                r = sentinel_new(agent, &agent->sentinel);
        if (r == 0)
                r = clock_watch_new(agent, &agent->clock);
        if (r < 0)
                return log_errno(r, "cannot watch for a resume, or the clock");
        r = exec_table_new(agent, &agent->execs);
        if (r < 0)
                return log_errno(r, "cannot prepare for commands");
        r = memory_watch_new(agent, &config->memory, &agent->memory);
        if (r < 0)
                return log_errno(r, "cannot watch the machine's memory");
        r = network_new(agent, &agent->network);
        if (r < 0)
                return log_errno(r, "cannot prepare the network");
        r = files_new(agent, &agent->files);
        if (r == 0)
                r = forwards_new(agent, &agent->forwards);
        if (r < 0)
                return log_errno(r, "cannot prepare for files");
        r = transport_listen_guest(&agent->transport, agent->port, &fd);
        if (r < 0)
                return log_errno(r, "cannot listen on port %u%s%s", agent->port,
                        agent->transport.path ? " in " : " of vsock",
                        agent->transport.path ? agent->transport.path : "");
        r = control_server_new(agent, fd, opening_take, &agent->controls);
        return r < 0 ? log_errno(r, "cannot serve") : 0;
}

static void free_event(struct event *event)
{
        if (event)
                event_free(event);
}

static void tear_down(struct agent *agent)
{
        activate_abort(agent, "the agent ends");
        (void)filesystems_release(agent); /* what ends now may have to write */
        control_server_free(agent->controls);
        forwards_free(agent->forwards);
        files_free(agent->files);
        network_free(agent->network);
        memory_watch_free(agent->memory);
        sentinel_free(agent->sentinel);
        resume_watch_free(agent->resume);
        clock_watch_free(agent->clock);
        standstill_watch_free(agent->standstill);
        if (agent->secrets_timer)
                agent_set_secrets(agent, NULL); /* takes files from execs */
        if (agent->execs)
                exec_table_free(agent->execs);
        network_free_env(agent->workload_env);
        for (size_t i = 0; i < sizeof(agent->signals) / sizeof(agent->signals[0]); i++)
                free_event(agent->signals[i]);
        free_event(agent->secrets_timer);
        free_event(agent->ending);
        free(agent->last);
        if (agent->base)
                event_base_free(agent->base);
}

int serve(const struct serve_config *config, enum agent_end *ret_end)
{
        struct agent agent = {
                .transport = config->transport,
                .port = config->port,
                .pid1 = config->pid1,
                .transparent = config->transparent,
                .proxy_variables = config->proxy_variables,
                .inherited_nofile = config->inherited_nofile,
                .started_ns = clock_monotonic_ns(),
        };
        int r = set_up(&agent, config);

        if (r == 0) {
                log_info("serving%s", config->pid1 ? " as PID 1" : "");
                self_notify(config->notify_socket, "READY=1");
                (void)event_base_dispatch(agent.base);
                self_notify(config->notify_socket, "STOPPING=1");
                *ret_end = agent.end;
        }
        tear_down(&agent);
        return r;
}
