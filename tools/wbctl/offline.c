/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/offline.h"

void offline_decide(const struct policy *policy, const struct request *request, bool is_service,
        const struct hostname *addresses, size_t addresses_n, struct decision *ret)
{
        static const struct floor floor = {0};
        struct request asked = *request;
        struct decision d;

        if (asked.via == VIA_DNS)
                asked.port = 0; /* a question names none */
        policy_decide(policy, &floor, &asked, is_service, &d);
        if (d.reason == REASON_ALLOWED && asked.host.kind == HOST_NAME && !is_service) {
                d.reason = policy_decide_addresses(&floor, addresses, addresses_n, &d.floor);
                if (d.reason != REASON_ALLOWED) {
                        d.rule = DECISION_NO_RULE;
                        d.inspect = false;
                }
        }
        *ret = d;
}
