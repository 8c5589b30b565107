/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "guest/standstill.h"
#include "guest/vmclock.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "proto/wire/limits.h"

struct raw_options {
        const char *listen;
        bool transparent;
        bool no_transparent;
        bool no_proxy_variables;
        const char *vmclock;
        const char *host_gone;
        uint64_t host_gone_ms;
        bool selftest;
        bool json;
        bool verbose;
        bool version;
};

static const struct option_spec specs[] = {
        {"listen", 0, OPTION_STRING, offsetof(struct raw_options, listen), "vsock:PORT|unix:DIR",
                "where the host reaches it (vsock:1024)"},
        {"transparent", 0, OPTION_FLAG, offsetof(struct raw_options, transparent), NULL,
                "answer the machine's DNS and take the place of its /etc/resolv.conf also when not PID 1"},
        {"no-transparent", 0, OPTION_FLAG, offsetof(struct raw_options, no_transparent), NULL,
                "never do that: there is the proxy alone"},
        {"no-proxy-variables", 0, OPTION_FLAG, offsetof(struct raw_options, no_proxy_variables), NULL,
                "do not tell commands of the proxy by http_proxy and its kin"},
        {"vmclock", 0, OPTION_STRING, offsetof(struct raw_options, vmclock), "FILE",
                "what tells of a resume (" VMCLOCK_DEVICE "; over unix nothing, unless given)"},
        {"host-gone", 0, OPTION_STRING, offsetof(struct raw_options, host_gone), "auto|thaw|power-off|stay",
                "what to do if the host does not activate again after a quiesce or a resume (auto: thaw after a quiesce that no snapshot followed, else power off)"},
        {"host-gone-after", 0, OPTION_DURATION_MS, offsetof(struct raw_options, host_gone_ms), "DURATION",
                "how long it has (10m)"},
        {"selftest", 0, OPTION_FLAG, offsetof(struct raw_options, selftest), NULL,
                "tell what this kernel and image lack, and what follows; then end"},
        {"json", 0, OPTION_FLAG, offsetof(struct raw_options, json), NULL, "of the selftest: a JSON array"},
        {"verbose", 'v', OPTION_FLAG, offsetof(struct raw_options, verbose), NULL, "log more"},
        {"version", 0, OPTION_FLAG, offsetof(struct raw_options, version), NULL, "print the version"},
};

static const struct option_table table = {
        .usage = "wbagent [--listen vsock:PORT|unix:DIR] [--transparent]",
        .summary =
                "The agent in a guest: runs the host's commands and puts the machine in order before any of them. As PID 1 it is the guest's init.",
        .example = "wbagent --listen vsock:1024",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

int agent_options_parse_listen(const char *text, struct transport *ret_transport, uint32_t *ret_port)
{
        uint64_t port = WB_PORT_CONTROL;

        if (strncmp(text, "unix:", 5) == 0 && text[5]) {
                *ret_transport = (struct transport){.kind = TRANSPORT_UNIX, .path = text + 5};
        } else if (strcmp(text, "vsock") == 0) {
                *ret_transport = (struct transport){.kind = TRANSPORT_VSOCK};
        } else if (strncmp(text, "vsock:", 6) == 0) {
                if (parse_u64(text + 6, UINT32_MAX - 1, &port) < 0 || port == 0)
                        return -EINVAL;
                *ret_transport = (struct transport){.kind = TRANSPORT_VSOCK};
        } else {
                return -EINVAL;
        }
        *ret_port = (uint32_t)port;
        return 0;
}

int agent_options_parse(int argc, char **argv, struct agent_options *ret)
{
        struct raw_options raw = {.listen = "vsock", .host_gone = "auto", .host_gone_ms = STANDSTILL_LIMIT_MS};
        struct agent_options parsed = {0};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &raw, &rest, &rest_n);

        if (r != 0)
                return r;
        if (raw.version) {
                printf("wbagent %s\n", WB_VERSION);
                return OPTIONS_E_HELP;
        }
        if (rest_n)
                return options_usage_error(&table, "'%s' is one argument too many", rest[0]);
        if (agent_options_parse_listen(raw.listen, &parsed.listen, &parsed.port) < 0)
                return options_usage_error(&table, "--listen wants vsock:PORT or unix:DIR, not '%s'", raw.listen);
        if (raw.transparent && raw.no_transparent)
                return options_usage_error(&table, "--transparent and --no-transparent exclude each other");
        if (host_gone_parse(raw.host_gone, &parsed.host_gone) < 0)
                return options_usage_error(
                        &table, "--host-gone wants auto, thaw, power-off or stay, not '%s'", raw.host_gone);
        parsed.host_gone_ms = raw.host_gone_ms;
        parsed.vmclock = raw.vmclock;
        if (raw.json && !raw.selftest)
                return options_usage_error(&table, "--json is of --selftest");
        parsed.selftest = raw.selftest;
        parsed.json = raw.json;
        parsed.transparent = raw.transparent;
        parsed.no_transparent = raw.no_transparent;
        parsed.no_proxy_variables = raw.no_proxy_variables;
        parsed.verbose = raw.verbose;
        *ret = parsed;
        return 0;
}
