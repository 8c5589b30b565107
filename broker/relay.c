/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/*
 * A direction is a short line:
 *
 *     from ──splice──► pipe ──splice──► to            or     from ──recv──► to->out ──send──► to
 *
 * It reads only when nothing is under way, so that at most one pipe's worth is held, and a pipe that has run empty goes
 * back to the pool. When `from` has ended and the line is empty, `to` gets its FIN.
 */

#define CHUNK_BYTES      65536u /* a pipe's default size: 16 pages */
#define COPY_CHUNK_BYTES 16384u
#define ROUNDS_MAX       4u /* in one turn of the loop, so that one connection does not hold up the others */

static const struct pipe no_pipe = {.read_fd = -1, .write_fd = -1};

int relay_init(struct relay *r, struct peer *client, struct peer *server, struct pipe_pool *pool, struct limits *limits,
        int rule)
{
        *r = (struct relay){
                .up = {.from = client, .to = server, .pipe = no_pipe},
                .down = {.from = server, .to = client, .pipe = no_pipe},
                .pool = pool,
                .limits = limits,
                .rule = rule,
        };

        /* What is in TLS is nothing that the kernel could splice. */
        r->up.copies = r->down.copies = client->tls || server->tls;

        int e = buffer_move(&server->out, &client->in);
        return e < 0 ? e : buffer_move(&client->out, &server->in);
}

void relay_leave_limits(struct relay *r)
{
        limits_forget(&r->up.waiter);
        limits_forget(&r->down.waiter);
}

void relay_on_turn(struct relay *r, void (*wake)(void *userdata), void *userdata)
{
        r->up.waiter.wake = r->down.waiter.wake = wake;
        r->up.waiter.userdata = r->down.waiter.userdata = userdata;
}

void relay_done(struct relay *r)
{
        if (!r->pool)
                return;
        relay_leave_limits(r);
        pipe_pool_put(r->pool, &r->up.pipe);
        pipe_pool_put(r->pool, &r->down.pipe);
        r->pool = NULL;
}

/* What is under way can no longer arrive. */
static void cut(struct relay *r, struct relay_direction *d)
{
        d->to->broken = true;
        d->ended = true;
        limits_forget(&d->waiter);
        buffer_done(&d->to->out);
        pipe_pool_put(r->pool, &d->pipe); /* closed, since it is not empty */
}

/* true: nothing is under way any more. */
static bool drain(struct relay *r, struct relay_direction *d)
{
        (void)peer_flush(d->to);
        if (d->to->broken) {
                cut(r, d);
                return true;
        }
        if (buffer_used(&d->to->out))
                return false;
        while (d->pipe.bytes) {
                ssize_t n = splice(
                        d->pipe.read_fd, NULL, d->to->fd, NULL, d->pipe.bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return false;
                if (n <= 0) {
                        cut(r, d);
                        return true;
                }
                d->pipe.bytes -= (size_t)n;
        }
        pipe_pool_put(r->pool, &d->pipe);
        return true;
}

/* Bytes read; 0: none now, or the end (from->eof); a negative errno. */
static ssize_t fill_pipe(struct relay *r, struct relay_direction *d, size_t most)
{
        if (d->pipe.read_fd < 0) {
                int e = pipe_pool_get(r->pool, &d->pipe);
                if (e < 0) {
                        d->copies = true; /* no descriptors left: a buffer does as well */
                        return -EINVAL;
                }
        }

        ssize_t n;
        do {
                n = splice(d->from->fd, NULL, d->pipe.write_fd, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        } while (n < 0 && errno == EINTR);
        if (n > 0) {
                d->pipe.bytes += (size_t)n;
                return n;
        }

        int error = n < 0 ? errno : 0;
        pipe_pool_put(r->pool, &d->pipe);
        if (error == EINVAL) {
                d->copies = true;
                return -EINVAL;
        }
        if (error != EAGAIN) {
                d->from->eof = true;
                d->from->reset = error != 0;
        }
        return 0;
}

static ssize_t fill_buffer(struct relay_direction *d, size_t most)
{
        ssize_t n = peer_fill(d->from, most < COPY_CHUNK_BYTES ? most : COPY_CHUNK_BYTES);

        if (n <= 0)
                return n;

        int e = buffer_move(&d->to->out, &d->from->in);
        return e < 0 ? e : n;
}

static ssize_t fill(struct relay *r, struct relay_direction *d, size_t most)
{
        if (!d->copies) {
                ssize_t n = fill_pipe(r, d, most);
                if (n != -EINVAL)
                        return n;
        }
        return fill_buffer(d, most);
}

/* One read. 1: more may be there; 0: not now; LIMITS_E_QUOTA; a negative errno. */
#define PUMP_AGAIN 1
static int refill(struct relay *r, struct relay_direction *d, uint64_t now_ns)
{
        enum limits_direction direction = d == &r->up ? LIMITS_UP : LIMITS_DOWN;
        size_t most = 0;

        d->wait_ns = 0;
        int e = limits_grant(r->limits, r->rule, direction, &d->waiter, CHUNK_BYTES, now_ns, &most, &d->wait_ns);
        if (e == LIMITS_E_WAIT)
                return 0;
        if (e)
                return e;

        ssize_t n = fill(r, d, most);
        if (n <= 0)
                return (int)n;
        limits_spend(r->limits, r->rule, direction, (size_t)n);
        d->moved_bytes += (uint64_t)n;
        return PUMP_AGAIN;
}

static int pump_direction(struct relay *r, struct relay_direction *d, uint64_t now_ns)
{
        for (unsigned round = 0; round < ROUNDS_MAX && !d->ended && !d->from->eof; round++) {
                if (!drain(r, d))
                        return 0;
                if (d->ended)
                        break;

                int e = refill(r, d, now_ns);
                if (e < 0 || e == LIMITS_E_QUOTA)
                        return e;
                if (e != PUMP_AGAIN)
                        break;
        }
        if (!d->ended && drain(r, d) && d->from->eof && !d->ended)
                d->ended = peer_finish(d->to);
        return 0;
}

enum relay_outcome relay_pump(struct relay *r, uint64_t now_ns)
{
        struct relay_direction *directions[] = {&r->up, &r->down};

        for (unsigned i = 0; i < 2; i++) {
                int e = pump_direction(r, directions[i], now_ns);

                if (e == LIMITS_E_QUOTA)
                        return RELAY_QUOTA;
                if (e < 0)
                        return RELAY_NO_MEMORY;
        }
        if (r->up.ended && r->down.ended)
                return RELAY_ENDED;
        /* Who is gone altogether gets nothing any more, and a reset is passed on as soon as what came before it is. */
        if (r->down.to->broken || (r->up.ended && r->up.from->eof && peer_hung_up(r->up.from)))
                return RELAY_ENDED;
        if (r->down.ended && r->down.from->reset)
                return RELAY_ENDED;
        return RELAY_GOES_ON;
}

static bool wants_read(const struct relay_direction *d)
{
        return !d->ended && !d->wait_ns && !d->pipe.bytes && !buffer_used(&d->to->out);
}

static bool wants_write(const struct relay_direction *d)
{
        return !d->ended && (d->pipe.bytes || buffer_used(&d->to->out));
}

uint64_t relay_want(struct relay *r)
{
        peer_want(r->up.from, wants_read(&r->up), wants_write(&r->down));
        peer_want(r->up.to, wants_read(&r->down), wants_write(&r->up));
        if (!r->up.wait_ns || !r->down.wait_ns)
                return r->up.wait_ns + r->down.wait_ns;
        return r->up.wait_ns < r->down.wait_ns ? r->up.wait_ns : r->down.wait_ns;
}
