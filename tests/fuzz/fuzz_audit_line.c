/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a line of an audit log: refused, or a record whose parts are what they claim to be. */
#include <stdlib.h>
#include <string.h>

#include "tools/wbctl/audit_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct audit_line line;
        uint64_t again_ns;

        if (audit_line_parse((const char *)data, n, &line) != 0)
                return 0;
        if (line.event >= AUDIT_EVENT_MAX_ || line.reason >= REASON_MAX_ || line.via >= VIA_MAX_ || line.rule < -1)
                abort();
        if (!line.has_decision && line.reason != REASON_ALLOWED)
                abort();
        if (!line.ts || audit_line_parse_time(line.ts, &again_ns) != 0 || again_ns != line.ts_ns)
                abort();
        audit_line_done(&line);
        return 0;
}
