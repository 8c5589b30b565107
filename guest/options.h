/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wbagent's command line. */

#include <stdbool.h>
#include <stdint.h>

#include "guest/resume_judge.h"
#include "proto/wire/transport.h"

struct agent_options {
        struct transport listen; /* path points into argv */
        uint32_t port;
        bool verbose;
        bool selftest; /* and nothing else */
        bool json;
        bool transparent; /* asked for; as PID 1 it is so unless it is switched off */
        bool no_transparent;
        bool no_proxy_variables;
        const char *vmclock; /* NULL: the usual place, if the kernel is the guest's own */
        enum host_gone host_gone;
        uint64_t host_gone_ms;
};

/* 0, or OPTIONS_E_HELP or OPTIONS_E_USAGE as proto/base/options.h has them: said, the caller exits. */
int agent_options_parse(int argc, char **argv, struct agent_options *ret);

/* "vsock", "vsock:PORT", "unix:DIR"; pure. 0 or -EINVAL. */
int agent_options_parse_listen(const char *text, struct transport *ret_transport, uint32_t *ret_port);
