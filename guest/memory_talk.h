/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's words about limits: `wbctl resize`, `wbctl limit`. */

#include "guest/control.h"

void memory_talk_resize(struct control *c, const Wb__MemoryResize *m);
