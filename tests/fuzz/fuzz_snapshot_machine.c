/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the machine file of a snapshot, and any bytes with a check behind them that is right, which no mutation
 * finds: what is accepted has one form, and every number in it is one that a machine may have. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/wbctl/run_machine.h"
#include "tools/wbctl/snapshot_machine.h"

static void check_accepted(const struct snapshot_machine *m, const char *data, size_t n)
{
        char text[SNAPSHOT_MACHINE_MAX_BYTES];
        size_t text_n;

        MUST(snapshot_machine_is_text(m->qemu) && snapshot_machine_is_text(m->machine));
        MUST(snapshot_machine_is_text(m->cpu) && snapshot_machine_is_text(m->processor));
        MUST(m->cpus >= 1 && m->cpus <= MACHINE_CPUS_MAX);
        MUST(m->memory_bytes >= MACHINE_MEMORY_MIN_BYTES && m->memory_bytes <= SNAPSHOT_MEMORY_MAX_BYTES);
        MUST(m->memory_bytes % MACHINE_MEMORY_UNIT_BYTES == 0);
        MUST(m->state_bytes >= 1 && m->state_bytes <= SNAPSHOT_STATE_MAX_BYTES);
        MUST(snapshot_machine_format(m, text, &text_n) == 0 && text_n == n && memcmp(text, data, n) == 0);
}

static void try(const char *data, size_t n)
{
        struct snapshot_machine m;
        struct snapshot_machine_error error = {0};
        int r = snapshot_machine_parse(data, n, &m, &error);

        MUST(r == 0 || (r == SNAPSHOT_MACHINE_E_INVALID && error.reason && error.line >= 1));
        if (r == 0)
                check_accepted(&m, data, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        uint8_t digest[SHA256_BYTES];
        char hex[SHA256_TEXT_BYTES];
        char text[SNAPSHOT_MACHINE_MAX_BYTES * 2];

        try((const char *)data, n);
        if (n > SNAPSHOT_MACHINE_MAX_BYTES)
                return 0;
        MUST(sha256_bytes(data, n, digest) == 0);
        sha256_text(digest, hex);
        memcpy(text, data, n);
        try(text, n + (size_t)snprintf(text + n, sizeof(text) - n, "check %s\n", hex));
        return 0;
}
