/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"

static const char *const transport_words[] = {
        [TRANSPORT_UNIX] = "unix",
        [TRANSPORT_HYBRID] = "hybrid",
        [TRANSPORT_VSOCK] = "vsock",
};

static int find_transport(const char *word)
{
        for (size_t i = 0; i < sizeof(transport_words) / sizeof(transport_words[0]); i++)
                if (strcmp(transport_words[i], word) == 0)
                        return (int)i;
        return -1;
}

/* What the broker's registry says of a VM's transport; 0 or an exit status, said. */
static int take_answer(json_t *answer, const char *name, struct target *ret)
{
        const char *transport = "", *path = NULL;
        json_int_t cid = 0;
        int kind;

        if (json_unpack(answer, "{s:{s:s, s?s, s?I}}", "vm", "transport", &transport, "path", &path, "cid", &cid) < 0)
                transport = "";
        kind = find_transport(transport);
        if (kind < 0 || (kind != TRANSPORT_VSOCK && !path) || cid < 0 || cid > UINT32_MAX) {
                fprintf(stderr, "wbctl: --vm %s: the broker's answer is not understood\n", name);
                return EXIT_FAILED;
        }
        ret->transport.kind = (enum transport_kind)kind;
        ret->transport.cid = (uint32_t)cid;
        if (kind == TRANSPORT_VSOCK)
                return 0;
        ret->owned_path = strdup(path);
        ret->transport.path = ret->owned_path;
        return ret->owned_path ? 0 : EXIT_FAILED;
}

static int ask_broker(const struct target_options *options, struct target *ret)
{
        json_t *answer;
        int r = control_client_ask(control_client_socket(options->socket),
                json_pack("{s:s, s:s}", "op", "vm_show", "name", options->vm), &answer);

        if (r != 0)
                return r == EXIT_NO ? EXIT_FAILED : r; /* EXIT_NO would read as the command's own answer */
        r = take_answer(answer, options->vm, ret);
        json_decref(answer);
        return r;
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
