/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts the agent together, serves, and takes it apart. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "guest/agent.h"
#include "guest/init.h"
#include "guest/resume_judge.h"
#include "proto/wire/transport.h"

struct serve_config {
        struct transport transport; /* where the host reaches us; path lives until serve() answers */
        uint32_t port;
        bool pid1;
        bool transparent, proxy_variables; /* see struct agent */
        struct rlimit inherited_nofile;    /* for children */
        const char *vmclock_path;          /* guest/resume.h; NULL: none */
        enum host_gone host_gone;          /* guest/standstill.h */
        uint64_t host_gone_ms;
        struct init_memory memory; /* guest/memory.h */
        const char *notify_socket; /* of the service manager; NULL: none */
};

/*
 * Until something ends it; execs and the agent's own children are then killed. 0 and why it ended, or a negative errno
 * (it could not begin), logged.
 */
int serve(const struct serve_config *config, enum agent_end *ret_end);
