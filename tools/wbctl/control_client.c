/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/control_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "broker/control.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/wipe.h"
#include "tools/wbctl/command.h"

#define DEFAULT_SOCKET "/run/wbbroker/control.sock"

const char *control_client_socket(const char *path)
{
        const char *environment = getenv("WB_SOCKET");

        return path ? path : environment && *environment ? environment : DEFAULT_SOCKET;
}

static int failed(const char *path, int r)
{
        const char *hint = r == -ENOENT || r == -ECONNREFUSED
                                   ? "; is wbbroker running? (--socket or WB_SOCKET name another)"
                           : r == -EACCES ? "; root and the members of its group may ask"
                                          : "";

        fprintf(stderr, "wbctl: the broker's control socket %s: %s%s\n", path, strerrordesc_np(-r), hint);
        return EXIT_FAILED;
}

static int dial(const char *path, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

static int exchange(int fd, const json_t *question, char **ret_line)
{
        _cleanup_(wipe_freep) char *text = json_dumps(question, JSON_COMPACT); /* it may hold secrets */
        int r = text ? io_write_full(fd, text, strlen(text)) : -ENOMEM;

        if (r == 0)
                r = io_write_full(fd, "\n", 1);
        /* One question a connection: the broker closes behind its answer. */
        if (r == 0 && shutdown(fd, SHUT_WR) < 0)
                r = -errno;
        return r < 0 ? r : io_read_fd(fd, CONTROL_LINE_MAX_BYTES, ret_line, NULL);
}

static int say(const json_t *answer)
{
        const char *error = json_string_value(json_object_get(answer, "error"));
        const char *reason = json_string_value(json_object_get(answer, "reason"));

        if (json_is_true(json_object_get(answer, "invalid"))) {
                fprintf(stderr, "%s\n", error ? error : "invalid");
                return EXIT_USAGE;
        }
        fprintf(stderr, "wbctl: %s%s%s\n", reason ? reason : "", reason ? ": " : "",
                error ? error : "the broker's answer makes no sense");
        return reason || json_is_true(json_object_get(answer, "absent")) ? EXIT_NO : EXIT_FAILED;
}

int control_client_ask(const char *path, json_t *question, json_t **ret)
{
        _cleanup_close_ int fd = -1;
        _cleanup_free_ char *line = NULL;
        json_t *answer;
        int r = dial(path, &fd);

        if (r == 0)
                r = exchange(fd, question, &line);
        json_decref(question);
        if (r < 0)
                return failed(path, r);
        answer = json_loads(line, 0, NULL);
        if (json_is_true(json_object_get(answer, "ok"))) {
                *ret = answer;
                return 0;
        }
        r = say(answer);
        json_decref(answer);
        return r;
}
