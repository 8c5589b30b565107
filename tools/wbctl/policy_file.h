/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A policy from a file, for the commands that judge by one. */

#include "broker/policy.h"
#include "broker/yaml.h"

/*
 * 0 with a reference in *ret; YAML_E_INVALID with *ret_error set, also where the file cannot be read; -ENOMEM.
 */
int policy_file_load(const char *path, struct policy **ret, struct yaml_error *ret_error);
