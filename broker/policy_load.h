/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A policy file's text to a struct policy; past this nobody sees YAML. Pure. */

#include <stddef.h>

#include "broker/policy.h"
#include "broker/yaml.h"

/* 0 with a reference in *ret; YAML_E_INVALID with *ret_error set; -ENOMEM. file is the name for messages. */
int policy_load(const char *file, const char *text, size_t n, struct policy **ret, struct yaml_error *ret_error);
