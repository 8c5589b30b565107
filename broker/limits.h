/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The limits of a policy while a VM runs: for each rule and for the VM as a whole, connections, requests a second,
 * bytes a second in each direction, and a quota of bytes. A connection is subject to those of its rule (if one decided)
 * and of the VM. Belongs to one VM and so to one thread. Pure: the caller passes the time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/bucket.h"
#include "broker/policy.h"

enum limits_direction {
        LIMITS_UP, /* guest to server */
        LIMITS_DOWN,
        LIMITS_DIRECTIONS_,
};

struct limits_queue;

/* Embedded in who moves bytes, one for each direction; zeroed at first. In a queue between a grant that has to wait and
 * the next one. */
struct limits_waiter {
        TAILQ_ENTRY(limits_waiter) link;
        struct limits_queue *queue; /* NULL: in none */
        uint64_t ticket;
        uint64_t due_ns;              /* it was told to ask again then */
        void (*wake)(void *userdata); /* its turn has come: it may ask, later, from the loop; may be NULL */
        void *userdata;
};
TAILQ_HEAD(limits_waiters, limits_waiter);

/* Who waits for a bucket, in the order in which they get something of it. */
struct limits_queue {
        struct limits_waiters waiters;
        uint64_t waiters_n;
        uint64_t tickets; /* given out */
};

/* One set of limits and what is used of it. */
struct limits_scope {
        struct policy_limits most;
        struct bucket bytes[LIMITS_DIRECTIONS_];
        struct limits_queue queues[LIMITS_DIRECTIONS_];
        struct bucket requests; /* a request is a byte to it */
        uint64_t connections;
        uint64_t quota_used_bytes;
        uint64_t owed_bytes[LIMITS_DIRECTIONS_]; /* passed without a grant; paid before the next one */
};

struct limits {
        struct limits_scope vm;
        struct limits_scope *rules; /* as many as the policy has; buckets have vm's as parents */
        size_t rules_n;
};

/* The address of l must not change afterwards. 0, -ENOMEM. */
int limits_init(struct limits *l, const struct policy *policy, uint64_t now_ns);
void limits_done(struct limits *l);

/*
 * Another policy: what was used of the VM and of rules with the same pattern stays used, the connections counted
 * included. 0, -ENOMEM (then nothing has changed). Every connection must leave before and enter again after.
 */
int limits_replace(struct limits *l, const struct policy *old, const struct policy *policy, uint64_t now_ns);

/* rule is the deciding rule's index or DECISION_NO_RULE, throughout. */

/* REASON_ALLOWED and the connection is counted, or REASON_CONNECTION_LIMIT, REASON_QUOTA_EXCEEDED. */
enum reason limits_enter(struct limits *l, int rule);
void limits_enter_anyway(struct limits *l, int rule); /* a living connection under a new policy */
void limits_leave(struct limits *l, int rule);

/* REASON_ALLOWED and the request is counted, or REASON_RATE_LIMITED with the time until it could be. */
enum reason limits_request(struct limits *l, int rule, uint64_t now_ns, uint64_t *ret_wait_ns);

/*
 * May bytes be moved? 0 with how many of want_bytes; LIMITS_E_WAIT with how long to wait; LIMITS_E_QUOTA: none ever
 * again. What was moved is told by limits_spend() before anything else is asked for. Connections that wait for one
 * bucket are served in turn, a slice each; w is whose turn that is. NULL: it does not matter.
 */
#define LIMITS_E_WAIT  1
#define LIMITS_E_QUOTA 2
int limits_grant(struct limits *l, int rule, enum limits_direction direction, struct limits_waiter *w,
        size_t want_bytes, uint64_t now_ns, size_t *ret_bytes, uint64_t *ret_wait_ns);
void limits_forget(struct limits_waiter *w); /* it waits no more; before it or the limits go */
void limits_spend(struct limits *l, int rule, enum limits_direction direction, size_t bytes);

/* What passed without being asked for, such as a request's head: nothing more is granted until the rate has made up for
 * it. */
void limits_owe(struct limits *l, int rule, enum limits_direction direction, size_t bytes);
