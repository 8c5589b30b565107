/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/secret_talk.h"

#include "guest/agent.h"
#include "guest/secret.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"

static void answer_error(struct control *c, const char *reason, const char *detail)
{
        (void)control_send_error(c, reason, detail);
        control_finish(c);
}

static void answer_ok(struct control *c)
{
        Wb__Ok ok = WB__OK__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        m.body_case = WB__FROM_AGENT__BODY_OK;
        m.ok = &ok;
        (void)control_send(c, &m);
        control_finish(c);
}

void secret_talk_put(struct control *c, const Wb__SecretPut *m)
{
        struct agent *agent = control_agent(c);
        int r;

        if (!m->secret) {
                answer_error(c, "bad_request", "there is no secret in it");
                return;
        }
        r = secret_put(agent->secrets, m->secret, clock_monotonic_ns());
        agent_secrets_changed(agent);
        if (r == 0)
                answer_ok(c);
        else
                answer_error(c, r == SECRET_E_FULL ? "bad_request" : "internal",
                        r == SECRET_E_FULL ? "this guest has as many secrets as it takes" : "no memory");
}

void secret_talk_revoke(struct control *c, const Wb__SecretRevoke *m)
{
        struct agent *agent = control_agent(c);
        int r = secret_revoke(agent->secrets, m->name, clock_monotonic_ns());

        agent_secrets_changed(agent);
        if (r == 0)
                answer_ok(c);
        else
                answer_error(c, r == SECRET_E_EXPIRED ? "secret_expired" : "secret_unknown", m->name);
}

void secret_talk_list(struct control *c)
{
        const struct secret_store *store = control_agent(c)->secrets;
        uint64_t now_ns = clock_monotonic_ns(), expires_ns;
        Wb__SecretEntry entries[WB_SECRETS_MAX], *pointers[WB_SECRETS_MAX];
        Wb__SecretEntries list = WB__SECRET_ENTRIES__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        const char *name;

        for (size_t i = 0; i < WB_SECRETS_MAX && secret_at(store, i, &name, &expires_ns); i++) {
                entries[i] = (Wb__SecretEntry)WB__SECRET_ENTRY__INIT;
                entries[i].name = (char *)(uintptr_t)name;
                if (expires_ns != UINT64_MAX) /* one whose time is up this moment has a millisecond left: 0 says more */
                        entries[i].left_ms = expires_ns > now_ns ? (expires_ns - now_ns) / NSEC_PER_MSEC + 1 : 1;
                pointers[i] = &entries[i];
                list.n_entries++;
        }
        list.entries = pointers;
        list.memory = (char *)(uintptr_t)secret_memory_name(secret_memory_kind(store));
        m.body_case = WB__FROM_AGENT__BODY_SECRET_ENTRIES;
        m.secret_entries = &list;
        (void)control_send(c, &m);
        control_finish(c);
}
