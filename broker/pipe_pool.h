/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pipes that splice(2) moves bytes through. A direction borrows one while bytes are in it, so that the number of pipes
 * follows the connections that are moving bytes, not those that are open.
 */

#include <stddef.h>

#define PIPE_POOL_KEEP 32u /* empty pipes kept open for a worker */

struct pipe {
        int read_fd;
        int write_fd;
        size_t bytes; /* in the pipe */
};

struct pipe_pool {
        struct pipe idle[PIPE_POOL_KEEP];
        size_t idle_n;
        size_t open_n; /* idle or borrowed */
        size_t most;   /* 0: as many as there are descriptors */
};

/* 0, or a negative errno (-EMFILE, also where `most` are open; -ENFILE). *ret is the caller's until pipe_pool_put(). */
int pipe_pool_get(struct pipe_pool *pool, struct pipe *ret);

/* One with bytes left in it is closed. Leaves *pipe without descriptors; takes such a one, too. */
void pipe_pool_put(struct pipe_pool *pool, struct pipe *pipe);

void pipe_pool_done(struct pipe_pool *pool);
