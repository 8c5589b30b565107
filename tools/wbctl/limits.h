/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What bounds a guest's execs and memory filesystems, for `wbctl info`, limit and resize: for a person, and for a
 * machine. */

#include <jansson.h>

#include "proto/wb.pb-c.h"

/* "memory 64.0 MiB, pids 100", or "none". */
#define LIMITS_TEXT_BYTES 160
void limits_exec_text(const Wb__ExecLimits *limits, char ret_text[LIMITS_TEXT_BYTES]);
json_t *limits_exec_json(const Wb__ExecLimits *limits);

void limits_memory_print(const Wb__MemoryLimits *limits);
json_t *limits_memory_json(const Wb__MemoryLimits *limits);
