/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of `wbctl policy`, one file each, and what they share. Each answers the exit status. */

#include <jansson.h>
#include <stdbool.h>

#include "broker/policy.h"

int policy_command_check(int argc, char **argv);
int policy_command_diff(int argc, char **argv);
int policy_command_lint(int argc, char **argv);
int policy_command_suggest(int argc, char **argv);

/*
 * A policy's file, or the exit status with the fault said on stderr: EXIT_USAGE for one that is invalid (with json also
 * as an object on stdout), EXIT_FAILED. 0 with a reference in *ret.
 */
int policy_command_load(const char *file, bool json, struct policy **ret);

/* One line on stdout; answer is taken. 0, or EXIT_FAILED with the fault said. */
int policy_command_print(json_t *answer);
