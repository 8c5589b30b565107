/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A decision without a broker: by the broker's own code, and the floor as it is compiled in. Pure. */

#include "broker/policy.h"

/* What the name resolves to may be left out: then it is judged alone. */
void offline_decide(const struct policy *policy, const struct request *request, bool is_service,
        const struct hostname *addresses, size_t addresses_n, struct decision *ret);
