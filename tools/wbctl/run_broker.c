/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_broker.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "broker/yaml.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"

bool run_broker_listens(const char *control)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || strlen(control) >= sizeof(address.sun_path))
                return false;
        (void)strcpy(address.sun_path, control);
        return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* question is taken; NULL: no memory. */
static int ask(const char *control, json_t *question)
{
        json_t *answer = NULL;

        if (!question) {
                fprintf(stderr, "wbctl: run: no memory\n");
                return EXIT_FAILED;
        }

        int r = control_client_ask(control, question, &answer);

        json_decref(answer);
        return r;
}

int run_broker_add(const char *control, const struct run_broker_vm *vm)
{
        _cleanup_free_ char *policy = NULL;
        size_t n;
        int r = io_read_file(vm->policy, YAML_MAX_BYTES, &policy, &n);

        if (r < 0) {
                fprintf(stderr, "wbctl: run: %s: %s\n", vm->policy, strerror(-r));
                return EXIT_USAGE;
        }
        return ask(control, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:s#, s:s}", "op", "vm_add", "name",
                                    vm->name, "backend", "qemu", "transport", "hybrid", "path", vm->vsock_path, "pid",
                                    (json_int_t)vm->pid, "agent", 1, "policy", policy, n, "policy_file", vm->policy));
}

int run_broker_activate(const char *control, const char *name)
{
        return ask(control, json_pack("{s:s, s:s}", "op", "vm_activate", "name", name));
}

void run_broker_remove(const char *control, const char *name)
{
        (void)ask(control, json_pack("{s:s, s:s}", "op", "vm_rm", "name", name));
}
