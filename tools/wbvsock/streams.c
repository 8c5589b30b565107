/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "tools/wbvsock/stream.h"
#include "tools/wbvsock/stream_private.h"

/* The ports that the host's connections come from: above those that Linux gives to its own, so that they never meet. */
#define HOST_PORT_FIRST 0x40000000u
#define HOST_PORT_LAST  0x7fffffffu

#define COMPLAIN_NS (10 * NSEC_PER_SEC)

static struct stream_list *bucket_of(struct streams *ss, uint32_t guest_port, uint32_t host_port)
{
        uint64_t h = ((uint64_t)guest_port << 32 | host_port) ^ ss->seed;

        h *= UINT64_C(0x9e3779b97f4a7c15); /* 2^64 over the golden ratio */
        return &ss->buckets[(h >> 32) & ss->buckets_mask];
}

int streams_init(struct streams *ss, const struct streams_setup *setup, uint32_t seed, struct event *wake)
{
        uint32_t buckets_n = 16;

        assert(setup->most <= STREAMS_MOST);
        while (buckets_n < setup->most * STREAM_ORIGINS)
                buckets_n *= 2;
        *ss = (struct streams){
                .setup = *setup,
                .buckets = calloc(buckets_n, sizeof(*ss->buckets)),
                .buckets_mask = buckets_n - 1,
                .seed = seed,
                .next_host_port = HOST_PORT_FIRST,
                .wake = wake,
        };
        TAILQ_INIT(&ss->ready);
        return ss->buckets ? 0 : -ENOMEM;
}

void streams_drop(struct streams *ss)
{
        while (!LIST_EMPTY(&ss->all))
                streams_free(LIST_FIRST(&ss->all));
}

void streams_done(struct streams *ss)
{
        streams_drop(ss);
        free(ss->buckets);
        ss->buckets = NULL;
}

struct stream *streams_find(struct streams *ss, uint32_t guest_port, uint32_t host_port)
{
        struct stream *s;

        LIST_FOREACH (s, bucket_of(ss, guest_port, host_port), bucket)
                if (s->connection.guest_port == guest_port && s->connection.host_port == host_port)
                        return s;
        return NULL;
}

struct stream *streams_get_ready(struct streams *ss)
{
        struct stream *s = TAILQ_FIRST(&ss->ready);

        if (s)
                streams_unready(s);
        return s;
}

void streams_unget(struct streams *ss, struct stream *s)
{
        TAILQ_INSERT_HEAD(&ss->ready, s, ready);
        s->in_ready = true;
}

void streams_ready(struct stream *s)
{
        struct streams *ss = s->owner;

        if (s->in_ready)
                return;
        TAILQ_INSERT_TAIL(&ss->ready, s, ready);
        s->in_ready = true;
        if (!ss->quiet)
                event_active(ss->wake, EV_TIMEOUT, 0);
}

void streams_unready(struct stream *s)
{
        if (!s->in_ready)
                return;
        TAILQ_REMOVE(&s->owner->ready, s, ready);
        s->in_ready = false;
}

void streams_complain(struct streams *ss, int error, const char *what)
{
        uint64_t now_ns = clock_monotonic_ns();

        if (ss->complained_ns && now_ns - ss->complained_ns < COMPLAIN_NS)
                return;
        ss->complained_ns = now_ns;
        log_write_errno(LOG_LEVEL_WARNING, error, "%s (said at most every 10 s)", what);
}

int streams_new(struct streams *ss, enum stream_origin origin, struct stream **ret)
{
        struct stream *s;

        if (ss->n[origin] >= ss->setup.most) {
                streams_complain(ss, -EUSERS,
                        origin == STREAM_BY_GUEST ? "refusing the guest's connections"
                                                  : "refusing connections to the guest");
                return -EUSERS;
        }
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->owner = ss;
        s->origin = origin;
        s->fd = -1;
        ss->n[origin]++;
        LIST_INSERT_HEAD(&ss->all, s, all);
        *ret = s;
        return 0;
}

void streams_enter(struct stream *s)
{
        const struct connection *c = &s->connection;

        LIST_INSERT_HEAD(bucket_of(s->owner, c->guest_port, c->host_port), s, bucket);
        s->in_table = true;
}

void streams_leave(struct stream *s)
{
        if (s->in_table)
                LIST_REMOVE(s, bucket);
        s->in_table = false;
}

void streams_free(struct stream *s)
{
        stream_close_socket(s);
        if (event_initialized(&s->timer))
                event_del(&s->timer);
        streams_unready(s);
        streams_leave(s);
        LIST_REMOVE(s, all);
        s->owner->n[s->origin]--;
        free(s);
}

uint32_t streams_pick_host_port(struct streams *ss, uint32_t guest_port)
{
        uint32_t port;

        /* Ends: there are far more ports than streams. */
        do {
                port = ss->next_host_port;
                ss->next_host_port = port == HOST_PORT_LAST ? HOST_PORT_FIRST : port + 1;
        } while (streams_find(ss, guest_port, port));
        return port;
}
