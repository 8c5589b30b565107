/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/target.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"

/* The broker's registry knows the transport of a VM by its name. */
static int ask_broker(const struct target_options *options, struct target *ret)
{
        (void)ret;
        fprintf(stderr,
                "wbctl: --vm %s: this wbctl cannot ask a broker for its VMs yet; name the VM with --uds, --cid or --unix\n",
                options->vm);
        return EXIT_FAILED;
}

int target_resolve(const struct option_table *table, const struct target_options *options, struct target *ret)
{
        unsigned given =
                (options->vm != NULL) + (options->uds != NULL) + (options->unix_dir != NULL) + (options->cid != 0);

        if (given != 1)
                return options_usage_error(
                        table, "%s of --vm, --uds, --cid, --unix", given ? "only one" : "one is needed");
        *ret = (struct target){0};
        if (options->vm)
                return ask_broker(options, ret);
        if (options->uds)
                ret->transport = (struct transport){.kind = TRANSPORT_HYBRID, .path = options->uds};
        else if (options->unix_dir)
                ret->transport = (struct transport){.kind = TRANSPORT_UNIX, .path = options->unix_dir};
        else if (options->cid <= WB_CID_HOST || options->cid >= UINT32_MAX)
                return options_usage_error(table, "--cid wants a guest's CID, from 3 on");
        else
                ret->transport = (struct transport){.kind = TRANSPORT_VSOCK, .cid = (uint32_t)options->cid};
        return 0;
}

void target_done(struct target *target)
{
        free(target->owned_path);
        *target = (struct target){0};
}
