/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The unprivileged half: it owns workers, the registry of VMs, the audit log and the control socket. The monitor starts
 * it as a process of its own
 * (`wbbroker BROKER_PROCESS_ARGUMENT`), as the user that it stays, with the monitor's socket as BROKER_MONITOR_FD.
 */

#define BROKER_PROCESS_ARGUMENT "--broker-process"
#define BROKER_MONITOR_FD       3

/* Answers the exit status. */
int broker_run(void);
