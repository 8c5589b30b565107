/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/evidence.h"

#include <string.h>

bool evidence_is_sound(const struct evidence *e)
{
        return memchr(e->program.path, '\0', sizeof(e->program.path)) &&
               memchr(e->cgroup.path, '\0', sizeof(e->cgroup.path)) && e->memory.shared_n <= EVIDENCE_SHARED_MAX;
}

const struct evidence_mapping *evidence_find_shared(const struct evidence *a, const struct evidence *b)
{
        for (uint32_t i = 0; i < a->memory.shared_n; i++) {
                const struct evidence_mapping *x = &a->memory.shared[i];

                for (uint32_t j = 0; j < b->memory.shared_n; j++) {
                        const struct evidence_mapping *y = &b->memory.shared[j];

                        if (x->device == y->device && x->inode == y->inode && (x->writable || y->writable))
                                return x;
                }
        }
        return NULL;
}

const char *evidence_program_name(const struct evidence *e)
{
        const char *slash = strrchr(e->program.path, '/');

        return slash ? slash + 1 : e->program.path;
}
