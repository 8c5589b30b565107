/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/pipe_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

static const struct pipe no_pipe = {.read_fd = -1, .write_fd = -1};

int pipe_pool_get(struct pipe_pool *pool, struct pipe *ret)
{
        int fds[2];

        if (pool->idle_n) {
                *ret = pool->idle[--pool->idle_n];
                return 0;
        }
        if (pool->most && pool->open_n >= pool->most)
                return -EMFILE;
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        *ret = (struct pipe){.read_fd = fds[0], .write_fd = fds[1]};
        pool->open_n++;
        return 0;
}

static void discard(struct pipe_pool *pool, struct pipe *pipe)
{
        pool->open_n--;
        close_fd(pipe->read_fd);
        close_fd(pipe->write_fd);
        *pipe = no_pipe;
}

void pipe_pool_put(struct pipe_pool *pool, struct pipe *pipe)
{
        if (pipe->read_fd < 0)
                return;
        if (pipe->bytes || pool->idle_n == PIPE_POOL_KEEP) {
                discard(pool, pipe);
                return;
        }
        pool->idle[pool->idle_n++] = *pipe;
        *pipe = no_pipe;
}

void pipe_pool_done(struct pipe_pool *pool)
{
        while (pool->idle_n)
                discard(pool, &pool->idle[--pool->idle_n]);
}
