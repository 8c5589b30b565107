/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/wipe.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void wipe_free(void *p)
{
        if (p)
                explicit_bzero(p, malloc_usable_size(p));
        free(p);
}
