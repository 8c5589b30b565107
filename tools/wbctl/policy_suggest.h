/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A policy from an audit log: rules for what was denied because no rule allowed it and for what was allowed and used,
 * no wider than what was seen (exact hosts, the ports, methods and paths of the log). Nothing is suggested for what no
 * rule can or should open: the floor, deny rules, walls, malformed requests, limits, failures behind the broker.
 *
 * What the log says comes from guests. Hosts are taken only in their canonical spelling, methods and paths only where a
 * policy can spell them exactly; all else is counted and left out. How much is kept is bounded. What is kept is written
 * in quotes. Pure.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "broker/policy.h"
#include "tools/wbctl/audit_line.h"

struct policy_suggest;

/*
 * known, or NULL: a policy whose decisions need no suggestion, and whose rules are watched for use. It is borrowed and
 * outlives the suggestions. 0 or -ENOMEM.
 */
int policy_suggest_new(const struct policy *known, struct policy_suggest **ret);
void policy_suggest_free(struct policy_suggest *s); /* takes NULL */

/* Takes a record into account. 0 or -ENOMEM. */
int policy_suggest_take(struct policy_suggest *s, const struct audit_line *line);

/* A line that was no record: it is only counted. */
void policy_suggest_count_malformed(struct policy_suggest *s);

/* The policy document, which policy_load() takes, with comments that say why. known_name is the known policy's file. */
void policy_suggest_write(const struct policy_suggest *s, const char *known_name, FILE *to);
