/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the monitor does once: directories, its listeners, and the broker's process. */

#include <sys/types.h>

#include "broker/config.h"

/* Who the broker is to be. */
struct broker_identity {
        bool drop; /* started as root, and a user is configured */
        uid_t uid;
        gid_t gid;
        gid_t groups[64];
        int groups_n;
};

/* 0 or a negative errno that has been logged; so do all of these. */
int broker_identity_find(const char *user, struct broker_identity *ret);

/* Makes state_dir (0700, the monitor's), run_dir (0755) and the audit's dir (0750, the broker's) where they are
 * missing. Their parents must exist. */
int monitor_make_directories(const struct config *config, const struct broker_identity *identity);

/* RUN_DIR/control.sock, 0660: owner as started, group the broker's. Replaces one that nobody listens on. */
int monitor_listen_control(const struct config *config, const struct broker_identity *identity, int *ret_fd);

/* Starts the broker's process as that identity with sock as its descriptor BROKER_MONITOR_FD. */
int monitor_start_broker(const struct broker_identity *identity, int sock, pid_t *ret_pid, int *ret_pidfd);
