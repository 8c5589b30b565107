/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Requests that stand for all requests, for what is to be said of a policy as a whole (diff, lint).
 *
 * A decision depends on the host by which patterns match it, on the port by which lists name it, on the method by which
 * lists name it, on the path by which patterns match it, and on the protocol. So it is enough to ask
 *   - one host for each set of patterns that any host matches together. Of two patterns with a host in common one
 *     covers the other (pattern_covers()), so these are, for each pattern, what it matches and no narrower one does;
 * and what none matches, once for names, IPv4 and IPv6. Addresses are taken outside of the floor, since inside of it
 *     nothing is ever allowed; names that the floor denies are judged as the operator's services, which it lets be.
 *   - one port for each set of rules that name it among those that match the host, and one that none names;
 *   - each method that they name and one that none does; no method (not known yet);
 *   - one path for each set of patterns (path_witness.h); no path;
 *   - each protocol;
 *   - and, apart, the host without a port, which is a DNS question.
 * All of them are real requests: what is found by one is so. What is found by none is not so, as long as the walk was
 * complete. Pure.
 */

#include "broker/policy.h"

#define WITNESS_POLICIES_MOST 2

/* One host and port of which all is alike but protocol, method and path. Lives for the call. */
struct witness_cell {
        const struct pattern *pattern; /* the narrowest that matches host; NULL: none does */
        struct hostname host;
        bool in_floor; /* a name that is reachable as an operator's service alone */
        bool is_dns;   /* no port: methods, paths and protocol are not known either */
        bool any_port; /* stands for all ports that no rule for this host names; ports holds one of them */
        const uint16_t *ports;
        size_t ports_n;

        /* Of each policy the rules that match this host and port: the others have no say here. */
        struct policy parts[WITNESS_POLICIES_MOST];
        const size_t *indices[WITNESS_POLICIES_MOST]; /* of a part's rule: its index in its policy */

        const char *const *methods; /* [0] is NULL, not known; [1] is one that no rule names */
        size_t methods_n;
        const char *const *paths; /* [0] is NULL, not known */
        size_t paths_n;
};

/* 0 to go on; anything else ends the walk and is its answer. */
typedef int (*witness_visit)(void *userdata, const struct witness_cell *cell);

/*
 * Visits each cell of the policies together. *ret_complete: no paths and no cells were left out for their number.
 * 0, -ENOMEM, or what visit answered.
 */
int policy_witness_walk(
        const struct policy *const *policies, size_t n, witness_visit visit, void *userdata, bool *ret_complete);

/* The request of a cell: with its port and with method, path and protocol. */
void witness_request(const struct witness_cell *cell, enum protocol protocol, const char *method, const char *path,
        struct request *ret);

/* What a part decides; the rule is the index in the whole policy. */
void witness_decide(const struct witness_cell *cell, size_t part, const struct request *request, struct decision *ret);
