/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/resolver.h"

#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

#define NAMES_MOST 2048u /* in the cache */

/*
 * A question or its answer may be lost, so each server is asked once more after a third of its time; where that is so
 * short that a server may just be slow, it is asked once.
 */
#define RESEND_FROM_MS 1500u

/*
 * Newer c-ares (1.34) waits as long as it thinks that a server needs, 250 ms for a quick one, whatever it was told. A
 * name that has to be looked up far away takes longer: what ends early is asked again while this much is left.
 */
#define LAST_AGAIN_PERCENT 25u

LIST_HEAD(watch_list, watch);
LIST_HEAD(question_list, question);
LIST_HEAD(waiter_list, resolver_waiter);

/* A socket of c-ares while it wants something of it. */
struct watch {
        LIST_ENTRY(watch) in_resolver;
        struct resolver *resolver;
        int fd;
        struct event event;
};

/* One of a question's two queries. */
struct query {
        struct question *question;
        int family;
};

/* A name that is being asked for. A and AAAA are two queries, so that the end of each is known by itself. */
struct question {
        LIST_ENTRY(question) in_resolver; /* in flight, or finished and not delivered */
        struct resolver *resolver;
        struct hostname name;
        struct waiter_list waiters;
        struct query queries[2];
        uint64_t ask_again_until_ns;
        unsigned pending; /* queries, and one while it is being started */
        bool timed_out;   /* a type had no answer in time */
        bool failed;      /* a type had an answer that is none */
        bool too_many;
        uint64_t ttl_s; /* the least of the chain */
        size_t addresses_n;
        struct dns_address addresses[DNS_ADDRESSES_MAX];
};

struct resolver {
        struct event_base *base;
        ares_channel channel;
        struct dns_cache *cache;
        uint64_t cache_max_s;
        uint64_t timeout_ms;
        struct hostname *servers;
        size_t servers_n;
        bool rotate;        /* the first server let a question time out */
        unsigned in_flight; /* questions */
        struct watch_list watches;
        struct question_list questions;
        struct question_list finished;
        struct event timer;
        struct event deliver;
};

static void schedule(struct resolver *r)
{
        struct timeval tv;

        if (r->channel && ares_timeout(r->channel, NULL, &tv))
                event_add(&r->timer, &tv);
        else
                event_del(&r->timer);
}

static void on_socket(evutil_socket_t fd, short what, void *userdata)
{
        struct watch *w = userdata;
        struct resolver *r = w->resolver; /* w may go in what follows */

        ares_process_fd(r->channel, what & EV_READ ? fd : ARES_SOCKET_BAD, what & EV_WRITE ? fd : ARES_SOCKET_BAD);
        schedule(r);
}

static void on_timer(evutil_socket_t fd, short what, void *userdata)
{
        struct resolver *r = userdata;

        (void)fd;
        (void)what;
        ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
        schedule(r);
}

static void watch_free(struct watch *w)
{
        event_del(&w->event);
        LIST_REMOVE(w, in_resolver);
        free(w);
}

/* c-ares says which of its sockets it waits for. */
static void on_socket_state(void *userdata, ares_socket_t fd, int readable, int writable)
{
        struct resolver *r = userdata;
        struct watch *w;

        LIST_FOREACH (w, &r->watches, in_resolver)
                if (w->fd == fd)
                        break;
        if (!readable && !writable) {
                if (w)
                        watch_free(w);
                return;
        }
        if (w) {
                event_del(&w->event);
        } else {
                w = calloc(1, sizeof(*w));
                if (!w) {
                        log_oom(); /* the question will time out */
                        return;
                }
                w->resolver = r;
                w->fd = fd;
                LIST_INSERT_HEAD(&r->watches, w, in_resolver);
        }

        short what = (short)((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0) | EV_PERSIST);
        event_assign(&w->event, r->base, fd, what, on_socket, w);
        event_add(&w->event, NULL);
}

static int set_servers(struct resolver *r)
{
        char csv[1024];
        size_t used = 0;

        for (size_t i = 0; i < r->servers_n; i++) {
                int n = snprintf(csv + used, sizeof(csv) - used, "%s%s", i ? "," : "", r->servers[i].text);

                if (n < 0 || (size_t)n >= sizeof(csv) - used)
                        break; /* a dozen servers are enough */
                used += (size_t)n;
        }
        return ares_set_servers_csv(r->channel, csv) == ARES_SUCCESS ? 0 : -EINVAL;
}

/*
 * Every value is given, so that c-ares reads no file of the system: neither its servers nor its search domains are to
 * have a say, and the sandbox would not let it.
 */
static int channel_open(struct resolver *r, uint64_t timeout_ms)
{
        bool twice = timeout_ms >= RESEND_FROM_MS;
        struct in_addr none = {.s_addr = htonl(INADDR_LOOPBACK)}; /* replaced by set_servers() */
        char lookups[] = "b";
        struct ares_options options = {
                .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
                .timeout = (int)(twice ? timeout_ms / 3 : timeout_ms), /* c-ares doubles it the second time */
                .tries = twice ? 2 : 1,
                .ndots = 1,
                .servers = &none,
                .nservers = 1,
                .domains = NULL,
                .ndomains = 0,
                .lookups = lookups,
                .sock_state_cb = on_socket_state,
                .sock_state_cb_data = r,
                .nsort = 0,
        };
        int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_SERVERS |
                   ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB | ARES_OPT_SORTLIST | ARES_OPT_NOROTATE;

#ifdef ARES_OPT_QUERY_CACHE
        options.qcache_max_ttl = 0; /* ours is bounded and knows the floor of a TTL */
        mask |= ARES_OPT_QUERY_CACHE;
#endif
        int status = ares_init_options(&r->channel, &options, mask);
        if (status != ARES_SUCCESS) {
                log_error("resolver: %s", ares_strerror(status));
                r->channel = NULL;
                return -EIO;
        }
        return set_servers(r);
}

/* Puts the server that did not answer behind the others; only possible while nothing is asked. */
static void rotate_servers(struct resolver *r)
{
        r->rotate = false;
        if (r->servers_n < 2)
                return;

        struct hostname first = r->servers[0];
        memmove(r->servers, r->servers + 1, (r->servers_n - 1) * sizeof(*r->servers));
        r->servers[r->servers_n - 1] = first;
        log_warning("resolver: %s does not answer, %s is asked first", first.text, r->servers[0].text);
        (void)set_servers(r);
}

static void finish(struct question *q)
{
        struct resolver *r = q->resolver;

        LIST_REMOVE(q, in_resolver);
        LIST_INSERT_HEAD(&r->finished, q, in_resolver);
        event_active(&r->deliver, 0, 0);
}

static void take_addresses(struct question *q, const struct ares_addrinfo *info)
{
        for (const struct ares_addrinfo_cname *c = info->cnames; c; c = c->next)
                if ((uint64_t)(c->ttl > 0 ? c->ttl : 0) < q->ttl_s)
                        q->ttl_s = (uint64_t)(c->ttl > 0 ? c->ttl : 0);
        for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
                struct dns_address a = {0};

                if (q->addresses_n == DNS_ADDRESSES_MAX) {
                        q->too_many = true;
                        return;
                }
                if (node->ai_family == AF_INET) {
                        a.kind = HOST_IPV4;
                        memcpy(a.bytes, &((const struct sockaddr_in *)(const void *)node->ai_addr)->sin_addr, 4);
                } else if (node->ai_family == AF_INET6) {
                        a.kind = HOST_IPV6;
                        memcpy(a.bytes, &((const struct sockaddr_in6 *)(const void *)node->ai_addr)->sin6_addr, 16);
                } else {
                        continue;
                }
                q->addresses[q->addresses_n++] = a;
                if ((uint64_t)(node->ai_ttl > 0 ? node->ai_ttl : 0) < q->ttl_s)
                        q->ttl_s = (uint64_t)(node->ai_ttl > 0 ? node->ai_ttl : 0);
        }
}

static void ask(struct query *query);

/* One type's answer. Runs inside of c-ares: the waiters are told from the loop. */
static void on_answer(void *userdata, int status, int timeouts, struct ares_addrinfo *info)
{
        struct query *query = userdata;
        struct question *q = query->question;

        if (timeouts)
                q->resolver->rotate = true;
        if (status == ARES_SUCCESS && info)
                take_addresses(q, info);
        else if (status == ARES_ETIMEOUT && clock_monotonic_ns() < q->ask_again_until_ns)
                ask(query);
        else if (status == ARES_ETIMEOUT)
                q->timed_out = true;
        else if (status != ARES_ENODATA && status != ARES_ENOTFOUND)
                q->failed = true;
        if (info)
                ares_freeaddrinfo(info);
        if (!--q->pending)
                finish(q);
}

static struct dns_answer *answer_of(const struct question *q)
{
        size_t n = q->too_many ? 0 : q->addresses_n;
        struct dns_answer *a = calloc(1, sizeof(*a) + n * sizeof(*a->addresses));

        if (!a)
                return NULL;
        a->addresses_n = n;
        memcpy(a->addresses, q->addresses, n * sizeof(*a->addresses));
        if (n)
                a->reason = REASON_ALLOWED;
        else
                a->reason = q->timed_out && !q->too_many ? REASON_DNS_TIMEOUT : REASON_DNS_FAILURE;
        return a;
}

/* What failed in part may be whole a moment later. */
static void remember(struct resolver *r, const struct question *q, const struct dns_answer *answer)
{
        bool partly = q->timed_out || q->failed;

        if (partly && !answer->addresses_n)
                return;

        uint64_t ttl_s = partly && q->ttl_s > DNS_TTL_NEGATIVE_S ? DNS_TTL_NEGATIVE_S : q->ttl_s;
        uint64_t lifetime_ns = dns_cache_lifetime_ns(answer, ttl_s, r->cache_max_s);
        if (lifetime_ns)
                (void)dns_cache_put(r->cache, &q->name, answer, clock_monotonic_ns() + lifetime_ns);
}

static void deliver_one(struct resolver *r, struct question *q)
{
        static const struct dns_answer no_memory = {.reason = REASON_DNS_FAILURE};
        _cleanup_free_ struct dns_answer *answer = answer_of(q);

        if (answer)
                remember(r, q, answer);
        while (!LIST_EMPTY(&q->waiters)) {
                struct resolver_waiter *w = LIST_FIRST(&q->waiters);

                LIST_REMOVE(w, in_question);
                w->done(w, answer ? answer : &no_memory);
        }
        r->in_flight--;
        free(q);
}

static void on_deliver(evutil_socket_t fd, short what, void *userdata)
{
        struct resolver *r = userdata;

        (void)fd;
        (void)what;
        while (!LIST_EMPTY(&r->finished)) {
                struct question *q = LIST_FIRST(&r->finished);

                LIST_REMOVE(q, in_resolver);
                deliver_one(r, q);
        }
        if (r->rotate && !r->in_flight)
                rotate_servers(r);
}

static void ask(struct query *query)
{
        const struct ares_addrinfo_hints hints = {
                .ai_flags = ARES_AI_NOSORT, .ai_socktype = SOCK_STREAM, .ai_family = query->family};
        struct question *q = query->question;

        q->pending++;
        ares_getaddrinfo(q->resolver->channel, q->name.text, NULL, &hints, on_answer, query);
}

static void start(struct resolver *r, struct question *q)
{
        uint64_t time_ms = r->timeout_ms * r->servers_n;

        q->ask_again_until_ns = clock_monotonic_ns() + time_ms * (100 - LAST_AGAIN_PERCENT) / 100 * NSEC_PER_MSEC;
        q->queries[0] = (struct query){q, AF_INET6};
        q->queries[1] = (struct query){q, AF_INET};
        q->pending = 1;
        ask(&q->queries[0]);
        ask(&q->queries[1]);
        if (!--q->pending)
                finish(q);
        schedule(r);
}

static struct question *find_question(struct resolver *r, const struct hostname *name)
{
        struct question *q;

        LIST_FOREACH (q, &r->questions, in_resolver)
                if (q->name.length == name->length && !memcmp(q->name.text, name->text, name->length))
                        return q;
        return NULL;
}

int resolver_ask(
        struct resolver *r, const struct hostname *name, struct resolver_waiter *w, const struct dns_answer **ret)
{
        const struct dns_answer *known = dns_cache_get(r->cache, name, clock_monotonic_ns());

        if (known) {
                *ret = known;
                return 0;
        }

        struct question *q = find_question(r, name);
        if (q) {
                LIST_INSERT_HEAD(&q->waiters, w, in_question);
                return RESOLVER_E_PENDING;
        }

        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->resolver = r;
        q->name = *name;
        q->ttl_s = UINT32_MAX;
        LIST_INSERT_HEAD(&q->waiters, w, in_question);
        LIST_INSERT_HEAD(&r->questions, q, in_resolver);
        r->in_flight++;
        start(r, q);
        return RESOLVER_E_PENDING;
}

bool resolver_knows(struct resolver *r, const struct hostname *name)
{
        return dns_cache_get(r->cache, name, clock_monotonic_ns()) != NULL;
}

void resolver_cancel(struct resolver_waiter *w)
{
        LIST_REMOVE(w, in_question); /* the question goes on and fills the cache */
}

int resolver_configure(struct resolver *r, const struct resolver_config *config)
{
        _cleanup_free_ struct hostname *servers = calloc(config->servers_n, sizeof(*servers));
        uint64_t seed;

        if (!servers)
                return -ENOMEM;
        memcpy(servers, config->servers, config->servers_n * sizeof(*servers));
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                return -errno;

        struct dns_cache *cache;
        int e = dns_cache_new(NAMES_MOST, seed, &cache);
        if (e < 0)
                return e;
        if (r->channel)
                ares_destroy(r->channel); /* what was asked ends with an error, by on_answer() */
        r->channel = NULL;
        dns_cache_free(r->cache);
        r->cache = cache;
        free(r->servers);
        r->servers = STEAL(servers);
        r->servers_n = config->servers_n;
        r->cache_max_s = config->cache_max_s;
        r->timeout_ms = config->timeout_ms;
        return channel_open(r, config->timeout_ms);
}

int resolver_new(struct event_base *base, const struct resolver_config *config, struct resolver **ret)
{
        struct resolver *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->base = base;
        event_assign(&r->timer, base, -1, 0, on_timer, r);
        event_assign(&r->deliver, base, -1, 0, on_deliver, r);

        int e = resolver_configure(r, config);
        if (e < 0) {
                resolver_free(r);
                return e;
        }
        *ret = r;
        return 0;
}

void resolver_free(struct resolver *r)
{
        if (!r)
                return;
        if (r->channel)
                ares_destroy(r->channel);
        while (!LIST_EMPTY(&r->finished)) {
                struct question *q = LIST_FIRST(&r->finished);

                LIST_REMOVE(q, in_resolver);
                free(q);
        }
        while (!LIST_EMPTY(&r->watches))
                watch_free(LIST_FIRST(&r->watches));
        event_del(&r->timer);
        event_del(&r->deliver);
        dns_cache_free(r->cache);
        free(r->servers);
        free(r);
}
