/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The privileged half. It keeps the privileges that it was started with, never sees a guest's byte, and does for the
 * broker what that one can't do any more: reads files, makes the sockets that VMMs connect to, looks at processes. It
 * starts the broker, passes signals on to it as frames, speaks with systemd, and ends when the broker ends: nothing is
 * restarted silently.
 */

#include "broker/config.h"
#include "broker/file_set.h"
#include "broker/options.h"

/* Runs until the broker has ended; answers the exit status. files and config are of options->config and have been
 * checked. */
int monitor_run(const struct broker_options *options, const struct file_set *files, const struct config *config);
