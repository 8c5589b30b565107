/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The gate: no workload starts before an activation, and none while one runs. One state, one setter. */

#include <stdbool.h>

enum gate_state {
        GATE_CLOSED, /* before the first activation; after a failed one; after quiesce */
        GATE_ACTIVATING,
        GATE_OPEN,
};

struct gate {
        enum gate_state state;
};

bool gate_is_open(const struct gate *gate);
void gate_set(struct gate *gate, enum gate_state state);
const char *gate_state_name(enum gate_state state);
