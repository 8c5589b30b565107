/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wbctl secret with --vm: what the broker keeps for a VM. Each answers an exit status; what goes wrong is said. */

#include <stdbool.h>
#include <stdint.h>

#include "tools/wbctl/target.h"

/* path: secret_file.h. ttl_ms 0: as long as the VM is registered. */
int secret_broker_put(const struct target_options *target, const char *name, const char *path, uint64_t ttl_ms);
int secret_broker_rm(const struct target_options *target, const char *name);
int secret_broker_ls(const struct target_options *target, bool json);
