/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is loaded, and how a new configuration takes its place while the broker runs. */

#include "broker/file_set.h"
#include "broker/registry.h"
#include "broker/worker.h"

struct loaded {
        struct setup *setup;
        struct worker_settings *settings;
};
void loaded_done(struct loaded *l);

/* Adds the configuration's VMs that are not registered. One that is refused is logged and audited, and the others go
 * on. */
void reload_add_vms(struct loaded *l, struct registry *r);

/* The packed files of a monitor that has checked them. All or nothing: on a negative errno all is as before. */
int reload_apply(struct loaded *l, struct registry *r, int memfd);

/* Makes the workers' settings anew, for other addresses of the host. */
int reload_settings(struct loaded *l, struct registry *r);
