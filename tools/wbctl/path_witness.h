/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Paths that stand for all paths. Which of some patterns of http_paths a path matches is all that a policy can know of
 * it, so one path for each set of patterns that any path matches together is enough to learn what the policy does. They
 * are found by following all patterns at once through every path there can be (a breadth-first walk of the product of
 * their automata), which sees each such set. Pure.
 */

#include <stdbool.h>
#include <stddef.h>

struct path_witnesses {
        char **paths; /* no two are alike to the patterns */
        size_t n;
        bool complete; /* false: there were too many states to follow; paths may lack some */
};

/*
 * For patterns of policy_load(), which may be repeated or none. Always among the paths: one that no pattern matches, if
 * any path is such; `*`; one that no path rule can judge (request_path_is_ambiguous()); one with an encoded slash.
 * 0 or -ENOMEM.
 */
int path_witnesses_find(char *const *patterns, size_t n, struct path_witnesses *ret);
void path_witnesses_done(struct path_witnesses *w);
