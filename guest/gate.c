/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/gate.h"

#include <assert.h>
#include <stddef.h>

static const struct {
        const char *name;
        unsigned next; /* bits: what may follow */
} states[] = {
        [GATE_CLOSED] = {"closed", 1u << GATE_CLOSED | 1u << GATE_ACTIVATING},
        [GATE_ACTIVATING] = {"activating", 1u << GATE_CLOSED | 1u << GATE_OPEN},
        [GATE_OPEN] = {"open", 1u << GATE_CLOSED | 1u << GATE_ACTIVATING},
};
static_assert(sizeof(states) / sizeof(states[0]) == GATE_OPEN + 1, "a row for each state");

bool gate_is_open(const struct gate *gate)
{
        return gate->state == GATE_OPEN;
}

void gate_set(struct gate *gate, enum gate_state state)
{
        assert(states[gate->state].next & 1u << state);
        gate->state = state;
}

const char *gate_state_name(enum gate_state state)
{
        return states[state].name;
}
