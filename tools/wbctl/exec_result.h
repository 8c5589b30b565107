/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* --result FILE: how an exec ended, as one JSON object (cases/README-exec.md). */

#include "proto/client/exec_client.h"

/* 0, or a negative errno with the reason on stderr. */
int exec_result_write(const char *path, const struct exec_outcome *outcome);
