/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_monitor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/printable.h"
#include "tools/wbctl/qmp.h"

#define ANSWER_DEADLINE_NS (60 * NSEC_PER_SEC) /* QEMU's start included, on a busy machine; 0.3 s else */
#define ANSWER_WAIT_MS     1000
#define END_WAIT_MS        5000 /* for the keeper's word */
#define POLL_MS            2

int snapshot_monitor_open(struct snapshot_monitor *m, struct run_vm *vm, int *ret_fd)
{
        int fds[2];
        int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;

        *m = (struct snapshot_monitor){.vm = vm};
        if (r == 0 && (r = qmp_new(fds[0], &m->qmp)) < 0)
                close_fd(fds[1]);
        if (r == 0)
                *ret_fd = fds[1];
        return run_vm_failed(r, "QEMU's monitor");
}

void snapshot_monitor_close(struct snapshot_monitor *m)
{
        qmp_freep(&m->qmp);
        m->qmp = NULL;
}

static void note_event(struct snapshot_monitor *m, const json_t *object)
{
        const char *name = json_string_value(json_object_get(object, "event"));
        const char *device = json_string_value(json_object_get(json_object_get(object, "data"), "device"));

        if (name && device && strcmp(name, "DEVICE_DELETED") == 0 && strcmp(device, MACHINE_VSOCK_ID) == 0)
                m->unplugged = true;
}

/* That QEMU has ended is the keeper's to tell, which knows more about it. */
static int monitor_failed(struct snapshot_monitor *m, int error)
{
        int r = error == -EPIPE ? run_vm_wait(m->vm, -1, 0, END_WAIT_MS) : 0;

        return r != 0 ? r : run_vm_failed(error, "QEMU's monitor");
}

/* The next object, of whatever kind. */
static int receive(struct snapshot_monitor *m, json_t **ret)
{
        uint64_t deadline_ns = clock_monotonic_ns() + ANSWER_DEADLINE_NS;
        int r;

        while ((r = qmp_receive(m->qmp, ret)) == QMP_E_AGAIN) {
                int w = run_vm_wait(m->vm, qmp_fd(m->qmp), POLLIN, ANSWER_WAIT_MS);

                if (w != 0)
                        return w;
                if (clock_monotonic_ns() > deadline_ns)
                        return run_vm_failed(-ETIMEDOUT, "QEMU's monitor");
        }
        if (r < 0)
                return monitor_failed(m, r);
        note_event(m, *ret);
        return 0;
}

/* arguments is taken; fd, if not negative, goes with them. The answer's value goes to *ret, which the caller ends. */
static int ask_with(struct snapshot_monitor *m, const char *command, json_t *arguments, int fd, json_t **ret)
{
        json_t *object = NULL;
        const char *error;
        int r = qmp_send(m->qmp, command, arguments, fd);

        if (r < 0)
                return monitor_failed(m, r);
        do {
                json_decref(object);
                object = NULL;
                r = receive(m, &object);
        } while (r == 0 && json_object_get(object, "event"));
        if (r == 0 && json_unpack(object, "{s:{s:s}}", "error", "desc", &error) == 0) {
                char text[256];

                printable(error, text, sizeof(text));
                fprintf(stderr, "wbctl: QEMU's monitor: %s: %s\n", command, text);
                r = EXIT_FAILED;
        }
        if (r == 0)
                *ret = json_incref(json_object_get(object, "return"));
        json_decref(object);
        return r;
}

/* For the commands that answer with nothing. */
static int ask(struct snapshot_monitor *m, const char *command, json_t *arguments)
{
        json_t *nothing = NULL;
        int r = ask_with(m, command, arguments, -1, &nothing);

        json_decref(nothing);
        return r;
}

/* Asks until the status is no longer this one; the last goes to ret_status. */
static int ask_while(struct snapshot_monitor *m, const char *command, bool (*passing)(const char *status),
        char *ret_status, size_t room)
{
        int r;

        for (;;) {
                json_t *answer = NULL;
                const char *status;

                r = ask_with(m, command, NULL, -1, &answer);
                if (r != 0)
                        return r;
                status = json_string_value(json_object_get(answer, "status"));
                printable(status ? status : "", ret_status, room);
                json_decref(answer);
                if (!passing(ret_status))
                        return 0;
                r = run_vm_wait(m->vm, -1, 0, POLL_MS);
                if (r != 0)
                        return r;
        }
}

/* Memory that is shared, as ours is, stays out of the state. */
static int leave_memory_where_it_is(struct snapshot_monitor *m)
{
        return ask(m, "migrate-set-capabilities",
                json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "x-ignore-shared", "state", 1));
}

/* command reads or writes fd, of which QEMU gets a descriptor of its own. */
static int migrate(struct snapshot_monitor *m, const char *command, int fd)
{
        json_t *nothing = NULL;
        int r = ask_with(m, "getfd", json_pack("{s:s}", "fdname", "state"), fd, &nothing);

        json_decref(nothing);
        return r == 0 ? ask(m, command, json_pack("{s:s}", "uri", "fd:state")) : r;
}

int snapshot_monitor_greet(struct snapshot_monitor *m, char ret_version[SNAPSHOT_MACHINE_TEXT_BYTES])
{
        char version[SNAPSHOT_MACHINE_TEXT_BYTES];
        json_t *greeting = NULL;
        const char *package;
        int major, minor, micro;
        int r = receive(m, &greeting);

        if (r != 0)
                return r;
        r = json_unpack(greeting, "{s:{s:{s:{s:i, s:i, s:i}, s:s}}}", "QMP", "version", "qemu", "major", &major,
                "minor", &minor, "micro", &micro, "package", &package);
        if (r == 0) {
                const char *space = package[0] ? " " : "";
                int n = snprintf(version, sizeof(version), "%d.%d.%d%s%s", major, minor, micro, space, package);

                r = n > 0 && n < (int)sizeof(version) && snapshot_machine_is_text(version) ? 0 : -1;
        }
        json_decref(greeting);
        if (r != 0)
                return run_vm_failed(-EPROTO, "QEMU's version");
        memcpy(ret_version, version, sizeof(version));
        return ask(m, "qmp_capabilities", NULL);
}

static bool saves(const char *status)
{
        return strcmp(status, "completed") != 0 && strcmp(status, "failed") != 0 && strcmp(status, "cancelled") != 0;
}

static bool loads(const char *status)
{
        return strcmp(status, "inmigrate") == 0;
}

static int unplug(struct snapshot_monitor *m)
{
        int r = ask(m, "device_del", json_pack("{s:s}", "id", MACHINE_VSOCK_ID));

        while (r == 0 && !m->unplugged) {
                json_t *object = NULL;

                r = receive(m, &object);
                json_decref(object);
        }
        return r;
}

int snapshot_monitor_save(struct snapshot_monitor *m, int fd)
{
        char status[32];
        int r;

        if ((r = leave_memory_where_it_is(m)) != 0 || (r = unplug(m)) != 0 || (r = ask(m, "stop", NULL)) != 0 ||
                (r = migrate(m, "migrate", fd)) != 0 ||
                (r = ask_while(m, "query-migrate", saves, status, sizeof(status))) != 0)
                return r;
        if (strcmp(status, "completed") == 0)
                return 0;
        fprintf(stderr, "wbctl: QEMU could not save the VM's state: %s\n", status);
        return EXIT_FAILED;
}

int snapshot_monitor_load(struct snapshot_monitor *m, int fd)
{
        char status[32];
        int r;

        if ((r = leave_memory_where_it_is(m)) != 0 || (r = migrate(m, "migrate-incoming", fd)) != 0 ||
                (r = ask_while(m, "query-status", loads, status, sizeof(status))) != 0)
                return r;
        if (strcmp(status, "paused") == 0)
                return 0;
        fprintf(stderr, "wbctl: QEMU could not load the VM's state: %s\n", status);
        return EXIT_FAILED;
}

int snapshot_monitor_continue(struct snapshot_monitor *m)
{
        int r = ask(m, "device_add",
                json_pack("{s:s, s:s, s:s, s:s}", "driver", MACHINE_VSOCK_DRIVER, "id", MACHINE_VSOCK_ID, "chardev",
                        MACHINE_VSOCK_CHARDEV, "bus", MACHINE_VSOCK_BUS));

        return r == 0 ? ask(m, "cont", NULL) : r;
}
