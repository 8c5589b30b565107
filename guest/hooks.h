/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the image wants done at each activation, after the machine has been put in order and before any workload runs:
 * the executables in HOOKS_DIR, one after the other in the order of their names, each with a time limit. The first that
 * fails ends it.
 */

#include <event2/event_struct.h>

#include "guest/child.h"
#include "guest/report.h"

#define HOOKS_DIR      "/etc/wbagent/activate.d"
#define HOOKS_MAX      32
#define HOOKS_LIMIT_MS 10000 /* each */

struct agent;

struct hooks {
        struct agent *agent;
        struct child child;
        struct event timer;
        struct report *report; /* the caller's */
        char *names[HOOKS_MAX];
        size_t n, at;
        char **env;
        bool timed_out;
        void (*done)(void *userdata, int r);
        void *userdata;
};

#define HOOKS_E_RUNNING 1 /* done() will be called from the loop */

/* env (borrowed until the end) is all that they get. 0: there is none. HOOKS_E_RUNNING, or a negative errno said in the
 * report. */
int hooks_start(struct hooks *h, struct agent *agent, char **env, struct report *report,
        void (*done)(void *userdata, int r), void *userdata);

/* Kills the one that runs; done() is not called any more. A zeroed one may be stopped. */
void hooks_stop(struct hooks *h);
