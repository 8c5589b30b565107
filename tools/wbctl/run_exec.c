/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/wb.pb-c.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/session.h"

#define DIAL_DEADLINE_NS (10 * NSEC_PER_SEC) /* the agent has answered before */

/* What goes to the agent, and what it points to beside the caller's texts. */
struct message {
        Wb__ExecStart start;
        ProtobufCBinaryData *texts; /* argv, then env */
        Wb__SecretUse *secrets;
        Wb__SecretUse **secret_pointers;
};

static void message_done(struct message *q)
{
        for (size_t i = 0; i < q->start.n_secrets; i++)
                free(q->secrets[i].name);
        free(q->texts);
        free(q->secrets);
        free(q->secret_pointers);
}

static ProtobufCBinaryData bytes_of(const char *text)
{
        return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

static int fill(const struct run_exec *x, struct message *q)
{
        const struct option_strings *env = x->env;
        const struct option_strings *secrets = x->secrets;

        q->texts = calloc(x->argv_n + env->n, sizeof(*q->texts));
        q->secrets = calloc(secrets->n + 1, sizeof(*q->secrets));
        q->secret_pointers = calloc(secrets->n + 1, sizeof(Wb__SecretUse *));
        if (!q->texts || !q->secrets || !q->secret_pointers)
                return -ENOMEM;
        for (size_t i = 0; i < x->argv_n; i++)
                q->texts[i] = bytes_of(x->argv[i]);
        for (size_t i = 0; i < env->n; i++)
                q->texts[x->argv_n + i] = bytes_of(env->items[i]);
        q->start.argv = q->texts;
        q->start.n_argv = x->argv_n;
        q->start.env = q->texts + x->argv_n;
        q->start.n_env = env->n;
        q->start.secrets = q->secret_pointers;
        for (size_t i = 0; i < secrets->n; i++) {
                wb__secret_use__init(&q->secrets[i]);
                q->secret_pointers[i] = &q->secrets[i];
                q->secrets[i].name = strndup(secrets->items[i], strcspn(secrets->items[i], "="));
                if (!q->secrets[i].name)
                        return -ENOMEM;
                q->start.n_secrets = i + 1;
        }
        q->start.timeout_ms = x->timeout_ms;
        q->start.stdin_closed = !x->has_stdin;
        return 0;
}

int run_exec(const struct run_exec *x)
{
        const struct transport guest = {.kind = TRANSPORT_HYBRID, .path = x->vsock_path};
        const struct session_options session = {.terminal = x->terminal};
        struct message message = {.start = WB__EXEC_START__INIT};
        int fd = -1;
        int last = 0;
        int r = fill(x, &message);

        if (r == 0)
                r = transport_dial_guest(&guest, WB_PORT_CONTROL, clock_monotonic_ns() + DIAL_DEADLINE_NS, &fd, &last);
        if (r == 0) {
                r = session_exec(fd, &message.start, &session);
        } else {
                fprintf(stderr, "wbctl: the VM's agent: %s\n", strerror(-(last ? last : r)));
                r = EXIT_FAILED;
        }
        message_done(&message);
        return r;
}
