/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent.h"

#include "guest/exec.h"
#include "guest/secret.h"
#include "proto/base/clock.h"

#define ENDING_MS 50 /* for answers that are queued to leave */

static void watch_expiry(struct agent *agent)
{
        uint64_t now_ns = clock_monotonic_ns(), next_ns, wait_ns;
        struct timeval wait;

        (void)evtimer_del(agent->secrets_timer);
        secret_expire(agent->secrets, now_ns, &next_ns);
        if (next_ns == UINT64_MAX)
                return;
        wait_ns = next_ns - now_ns + NSEC_PER_USEC; /* not a moment too early */
        wait.tv_sec = (time_t)(wait_ns / NSEC_PER_SEC);
        wait.tv_usec = (suseconds_t)(wait_ns % NSEC_PER_SEC / NSEC_PER_USEC);
        (void)evtimer_add(agent->secrets_timer, &wait);
}

void agent_on_expiry(evutil_socket_t fd, short events, void *userdata)
{
        (void)fd;
        (void)events;
        watch_expiry(userdata);
}

static void on_secret_gone(void *userdata, const char *name)
{
        struct agent *agent = userdata;

        exec_table_forget_secret(agent->execs, name);
}

void agent_set_secrets(struct agent *agent, struct secret_store *store)
{
        secret_store_free(agent->secrets);
        agent->secrets = store;
        if (store)
                secret_watch(store, on_secret_gone, agent);
        watch_expiry(agent);
}

void agent_secrets_changed(struct agent *agent)
{
        watch_expiry(agent);
}

void agent_end_soon(struct agent *agent, enum agent_end end)
{
        if (evtimer_pending(agent->ending, NULL))
                return;
        agent->end = end;
        (void)evtimer_add(agent->ending, &(struct timeval){.tv_usec = ENDING_MS * 1000});
}
