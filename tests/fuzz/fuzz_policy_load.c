/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a policy: refused with a position and a printable line, or loaded, and then it decides and explains. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/policy_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_printable(const char *text)
{
        for (; *text; text++)
                if (*text < 0x20 || *text > 0x7e)
                        abort();
}

static void ask(const struct policy *policy, const char *host, uint16_t port, enum protocol protocol, const char *path)
{
        static const struct floor floor;
        struct request request = {.protocol = protocol, .port = port, .method = path ? "GET" : NULL, .path = path};
        char text[POLICY_EXPLAIN_BYTES];
        struct decision d;
        bool allowed[PROTOCOL_MAX_];

        if (hostname_parse(host, strlen(host), &request.host) != 0)
                abort();
        policy_decide(policy, &floor, &request, false, &d);
        if (d.reason == REASON_ALLOWED ? policy->network == NETWORK_NONE : d.inspect)
                abort();
        if (d.rule >= 0 && policy->rules[d.rule].deny != (d.reason == REASON_DENY_RULE))
                abort();
        policy_protocols(policy, &request, allowed);
        policy_explain(policy, &request, &d, text, sizeof(text));
        check_printable(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct policy *policy;
        struct yaml_error e = {0};

        if (policy_load("f", (const char *)data, n, &policy, &e) != 0) {
                if (!e.file || (e.line == 0) != (n > YAML_MAX_BYTES))
                        abort();
                check_printable(e.message);
                yaml_error_done(&e);
                return 0;
        }
        ask(policy, "www.example.org", 443, PROTOCOL_AUTO, NULL);
        ask(policy, "www.example.org", 0, PROTOCOL_AUTO, NULL);
        ask(policy, "example.org", 80, PROTOCOL_HTTP, "/a/b%2Fc/../d");
        ask(policy, "en.wikipedia.org", 443, PROTOCOL_TLS, "/wiki/Foo");
        ask(policy, "203.0.114.7", 22, PROTOCOL_TCP, NULL);
        ask(policy, "[2606:4700::1111]", 443, PROTOCOL_TLS, NULL);
        policy_unref(policy);
        return 0;
}
