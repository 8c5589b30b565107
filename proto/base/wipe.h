/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that may have held a secret. */

/*
 * free(3) that wipes the whole allocation first; p is malloc's, or NULL. For libraries that copy what they are given
 * and let their allocator be chosen.
 */
void wipe_free(void *p);

/* The same for a text, as a cleanup: _cleanup_(wipe_freep). */
static inline void wipe_freep(void *p)
{
        wipe_free(*(void **)p);
}
