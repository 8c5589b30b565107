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
#include "proto/base/wipe.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/secret_file.h"

bool run_broker_listens(const char *control)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || strlen(control) >= sizeof(address.sun_path))
                return false;
        memcpy(address.sun_path, control, strlen(control) + 1);
        return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* question is taken; NULL: no memory. */
static int ask(const char *control, json_t *question)
{
        json_t *answer = NULL;

        if (!question) {
                fprintf(stderr, "wbctl: no memory\n");
                return EXIT_FAILED;
        }

        int r = control_client_ask(control, question, &answer);

        json_decref(answer);
        /* "No" as a status of its own would be taken for the command's. */
        return r == EXIT_NO ? EXIT_FAILED : r;
}

int run_broker_add(const char *control, const struct run_broker_vm *vm)
{
        _cleanup_free_ char *policy = NULL;
        size_t n;
        int r = io_read_file(vm->policy, YAML_MAX_BYTES, &policy, &n);

        if (r < 0) {
                fprintf(stderr, "wbctl: %s: %s\n", vm->policy, strerror(-r));
                return EXIT_USAGE;
        }
        return ask(control, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:s#, s:s}", "op", "vm_add", "name",
                                    vm->name, "backend", "qemu", "transport", "hybrid", "path", vm->vsock_path, "pid",
                                    (json_int_t)vm->pid, "agent", 1, "policy", policy, n, "policy_file", vm->policy));
}

/* NAME=FILE into secrets. 0, or an exit status, said. */
static int add_secret(json_t *secrets, const char *given)
{
        const char *equals = strchr(given, '=');
        _cleanup_(wipe_freep) char *text = NULL;
        int r;

        if (json_object_getn(secrets, given, (size_t)(equals - given))) {
                fprintf(stderr, "wbctl: --secret %s: the name is there twice\n", given);
                return EXIT_USAGE;
        }
        r = secret_file_read_base64("--secret", equals + 1, &text);
        if (r != 0)
                return r;
        return json_object_setn_new(secrets, given, (size_t)(equals - given), json_string(text)) < 0 ? EXIT_FAILED : 0;
}

int run_broker_read_secrets(const struct option_strings *given, json_t **ret)
{
        json_t *secrets = json_object();
        int r = secrets ? 0 : EXIT_FAILED;

        for (size_t i = 0; r == 0 && i < given->n; i++)
                r = add_secret(secrets, given->items[i]);
        if (r == 0)
                *ret = secrets;
        else
                json_decref(secrets);
        return r;
}

int run_broker_activate(const char *control, const char *name, json_t *secrets)
{
        return ask(control, json_pack("{s:s, s:s, s:O}", "op", "vm_activate", "name", name, "secrets", secrets));
}

int run_broker_quiesce(const char *control, const char *name)
{
        return ask(control, json_pack("{s:s, s:s}", "op", "vm_quiesce", "name", name));
}

void run_broker_remove(const char *control, const char *name)
{
        (void)ask(control, json_pack("{s:s, s:s}", "op", "vm_rm", "name", name));
}
