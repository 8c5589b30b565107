/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/secret_broker.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/cleanup.h"
#include "proto/base/wipe.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/printable.h"
#include "tools/wbctl/secret_file.h"

/* question is taken. */
static int tell(const struct target_options *target, json_t *question)
{
        json_t *answer = NULL;
        int r = control_client_ask(control_client_socket(target->socket), question, &answer);

        json_decref(answer);
        return r;
}

int secret_broker_put(const struct target_options *target, const char *name, const char *path, uint64_t ttl_ms)
{
        _cleanup_(wipe_freep) char *text = NULL;
        json_t *question;
        int r = secret_file_read_base64("secret put", path, &text);

        if (r != 0)
                return r;
        question = json_pack(
                "{s:s, s:s, s:s, s:s}", "op", "secret_put", "name", target->vm, "secret", name, "value", text);
        if (!question)
                return EXIT_FAILED;
        if (ttl_ms)
                (void)json_object_set_new(question, "ttl_ms", json_integer((json_int_t)ttl_ms));
        return tell(target, question);
}

int secret_broker_rm(const struct target_options *target, const char *name)
{
        return tell(target, json_pack("{s:s, s:s, s:s}", "op", "secret_rm", "name", target->vm, "secret", name));
}

static void print_table(const json_t *secrets)
{
        json_t *secret;
        size_t i;

        json_array_foreach (secrets, i, secret) {
                const char *name = json_string_value(json_object_get(secret, "name"));
                const char *guest = json_string_value(json_object_get(secret, "guest"));
                const json_t *left = json_object_get(secret, "left_ms");
                bool is_kept = json_is_true(json_object_get(secret, "kept"));
                char text[200], time[64] = "no limit";

                printable(name ? name : "-", text, sizeof(text)); /* a guest may have made it up */
                if (json_is_integer(left))
                        (void)snprintf(time, sizeof(time), "%.1f s left", (double)json_integer_value(left) / 1e3);
                else if (!is_kept)
                        (void)snprintf(time, sizeof(time), "next quiesce");
                printf("%-32s %-16s guest: %-8s broker: %s\n", text, time, guest ? guest : "-",
                        is_kept ? "kept" : "not kept");
        }
}

int secret_broker_ls(const struct target_options *target, bool json)
{
        json_t *answer = NULL;
        const json_t *secrets;
        const char *error;
        int r = control_client_ask(control_client_socket(target->socket),
                json_pack("{s:s, s:s}", "op", "secret_ls", "name", target->vm), &answer);

        if (r != 0)
                return r;
        secrets = json_object_get(answer, "secrets");
        error = json_string_value(json_object_get(answer, "guest_error"));
        if (error)
                fprintf(stderr, "wbctl: the guest could not be asked what it holds: %s\n", error);
        if (json) {
                (void)json_dumpf(secrets, stdout, JSON_INDENT(2));
                putchar('\n');
        } else {
                print_table(secrets);
        }
        json_decref(answer);
        return 0;
}
