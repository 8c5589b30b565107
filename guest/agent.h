/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: owns the loop, the gate, the conversations, the execs. One thread. */

#include <stdbool.h>

#include <event2/event.h>

#include "guest/gate.h"
#include "proto/wb.pb-c.h"

struct exec_table;

struct agent {
        struct event_base *base;
        struct gate gate;
        bool pid1;
        struct exec_table *execs;
        char **workload_env;    /* NAME=VALUE, NULL-terminated: what activation adds for workloads (proxy variables) */
};
