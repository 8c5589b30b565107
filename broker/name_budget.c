/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/name_budget.h"

#include <assert.h>

#include "proto/base/clock.h"

#define MINUTE_NS (60 * NSEC_PER_SEC)

void name_budget_init(struct name_budget *b, uint32_t queries_most, uint32_t names_most, uint64_t seed, uint64_t now_ns)
{
        assert(names_most <= NAME_BUDGET_LOOKUP_NAMES);
        *b = (struct name_budget){
                .queries_most = queries_most, .names_most = names_most, .seed = seed, .began_ns = now_ns};
}

uint64_t name_budget_wait_ns(const struct name_budget *b, uint64_t now_ns)
{
        uint64_t elapsed_ns = now_ns - b->began_ns;

        return elapsed_ns < MINUTE_NS ? MINUTE_NS - elapsed_ns : 0;
}

/* FNV-1a, begun at a secret place. Two names of one hash count as one, which costs nothing. */
static uint64_t hash(const struct name_budget *b, const struct hostname *name)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325) ^ b->seed;

        for (size_t i = 0; i < name->length; i++)
                h = (h ^ (uint8_t)name->text[i]) * UINT64_C(0x100000001b3);
        return h;
}

static bool take_name(struct name_budget *b, const struct hostname *name)
{
        uint64_t h = hash(b, name);

        for (uint32_t i = 0; i < b->names_n; i++)
                if (b->names[i] == h)
                        return true;
        if (b->names_n == b->names_most)
                return false;
        b->names[b->names_n++] = h;
        return true;
}

bool name_budget_take(struct name_budget *b, const struct hostname *name, uint64_t now_ns, bool *ret_first)
{
        if (now_ns - b->began_ns >= MINUTE_NS) {
                b->began_ns = now_ns;
                b->queries = b->names_n = 0;
                b->told = false;
        }
        if (b->queries < b->queries_most && (!name || take_name(b, name))) {
                b->queries++;
                return true;
        }
        *ret_first = !b->told;
        b->told = true;
        return false;
}
