/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names to addresses, for one worker: c-ares with the configured servers alone (no search domain, no /etc/hosts, no
 * alias), A and AAAA asked once each, TCP where an answer is truncated, the next server where one fails, and a bounded
 * cache. Sessions that ask for the same name at the same time share one question.
 */

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/dns_cache.h"
#include "proto/wire/hostname.h"

struct resolver;

struct resolver_config {
        const struct hostname *servers; /* copied */
        size_t servers_n;
        uint64_t timeout_ms; /* for each server, in which it may be asked twice */
        uint64_t cache_max_s;
};

int resolver_new(struct event_base *base, const struct resolver_config *config, struct resolver **ret);

/* No waiter may be left. Takes NULL. */
void resolver_free(struct resolver *r);

/* Other servers or times: questions in flight fail, the cache is emptied. 0 or a negative errno (the old one stays). */
int resolver_configure(struct resolver *r, const struct resolver_config *config);

/* Embedded in who waits. done is called once, from the loop, unless resolver_cancel() comes first; answer lives until
 * it returns. */
struct resolver_waiter {
        LIST_ENTRY(resolver_waiter) in_question; /* private */
        void (*done)(struct resolver_waiter *w, const struct dns_answer *answer);
};

/*
 * name must be one that policy allowed: asking is telling. 0 with the answer, which lives until the next call;
 * RESOLVER_E_PENDING: done will be called; -ENOMEM.
 */
#define RESOLVER_E_PENDING 1
int resolver_ask(
        struct resolver *r, const struct hostname *name, struct resolver_waiter *w, const struct dns_answer **ret);
bool resolver_knows(struct resolver *r, const struct hostname *name); /* without asking anybody */
void resolver_cancel(struct resolver_waiter *w);                      /* only while it is pending */
