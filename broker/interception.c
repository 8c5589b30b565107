/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/interception.h"

#include <errno.h>

#include "broker/ca.h"
#include "broker/file_set.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/wipe.h"

int interception_load_ca(struct registry *r, bool anew)
{
        _cleanup_close_ int fd = -1;
        struct ca *ca = NULL;
        _cleanup_(wipe_freep) char *text = NULL;
        size_t n = 0;
        int e = monitor_ask_ca(r->monitor, anew, &fd);

        if (e == 0)
                e = io_read_fd(fd, CA_FILE_MAX_BYTES, &text, &n);
        if (e == 0)
                e = ca_load(text, n, &ca);
        if (e < 0)
                return e;
        ca_unref(r->ca);
        r->ca = ca;
        if (anew)
                log_info("the interception CA is a new one, SHA-256 %s", ca_fingerprint(ca));
        return 0;
}

void interception_configure(struct registry *r, const struct setup *setup)
{
        const struct config *c = setup->config;

        r->intercepts = setup->trust != NULL;
        if (c->inspect_enabled && !setup->trust)
                log_warning("no certificates can be read from inspect.upstream_ca, %s: no TLS is intercepted",
                        c->inspect_upstream_ca);
}

static bool has_other_port(const struct policy_rule *rule, uint16_t port)
{
        for (size_t i = 0; i < rule->ports_n; i++)
                if (rule->ports[i] != port)
                        return true;
        return false;
}

/* May the rule have to look into TLS? With `auto`, port 80 is taken to be plain HTTP's. */
static bool looks_into_tls(const struct policy_rule *rule)
{
        if (rule->deny || (rule->methods_n == 0 && rule->paths_n == 0))
                return false;
        return rule->protocol == PROTOCOL_TLS || (rule->protocol == PROTOCOL_AUTO && has_other_port(rule, 80));
}

/* The policy's first rule that does, or NULL. */
static const struct policy_rule *find_rule(const struct policy *policy)
{
        for (size_t i = 0; i < policy->rules_n; i++)
                if (looks_into_tls(&policy->rules[i]))
                        return &policy->rules[i];
        return NULL;
}

void interception_give_ca(struct vm_entry *e)
{
        struct registry *r = e->registry;
        struct ca *old = e->ca;
        bool wanted = !e->config.agent || (r->intercepts && find_rule(e->policy));

        e->ca = wanted ? ca_ref(r->ca) : NULL;
        ca_unref(old);
}

void interception_warn(const struct vm_entry *e)
{
        const struct policy_rule *rule = find_rule(e->policy);

        if (!rule)
                return;
        if (!e->registry->intercepts || !e->registry->ca)
                log_warning(
                        "VM '%s': the rule in line %u of its policy needs TLS interception, which is not available: "
                        "TLS by it answers inspection_required",
                        e->config.name, rule->line);
        else if (e->state == VM_OPEN && !e->ca)
                log_warning(
                        "VM '%s': the rule in line %u of its policy needs TLS interception, but its guest was not given the "
                        "CA: activate it again, until then TLS by it answers inspection_required",
                        e->config.name, rule->line);
}
