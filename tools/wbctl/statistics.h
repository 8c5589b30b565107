/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a guest uses, for `wbctl info`: a few lines for a person, an object for a machine. */

#include <jansson.h>

#include "proto/wb.pb-c.h"

void statistics_print(const Wb__Statistics *s);
json_t *statistics_json(const Wb__Statistics *s);
