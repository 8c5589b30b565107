/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_vm.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/policy_file.h"
#include "tools/wbctl/run_broker.h"
#include "tools/wbctl/run_exec.h"
#include "tools/wbctl/run_kvm.h"
#include "tools/wbctl/session.h"

#define BOOT_DEADLINE_NS   (120 * NSEC_PER_SEC) /* software emulation on a busy machine; a boot takes 3 s */
#define BROKER_DEADLINE_NS (30 * NSEC_PER_SEC)
#define RETRY_MS           20

#define RUN_VM_E_NOT_YET (-2)

int run_vm_failed(int error, const char *what)
{
        if (error == 0)
                return 0;
        fprintf(stderr, "wbctl: %s: %s\n", what, strerror(-error));
        return EXIT_FAILED;
}

void run_vm_options_done(struct run_vm_options *o)
{
        option_strings_done(&o->env);
        option_strings_done(&o->secrets);
}

/* ---- before anything is started */

static int check_options(const struct run_vm_options *o, const struct option_table *table)
{
        for (size_t i = 0; i < o->env.n; i++)
                if (!strchr(o->env.items[i], '=') || o->env.items[i][0] == '=')
                        return options_usage_error(table, "--env wants NAME=VALUE, not '%s'", o->env.items[i]);
        for (size_t i = 0; i < o->secrets.n; i++)
                if (!strchr(o->secrets.items[i], '=') || o->secrets.items[i][0] == '=')
                        return options_usage_error(table, "--secret wants NAME=FILE");
        return 0;
}

/* The broker judges it again; here it costs no boot to learn of an error. */
static int check_policy(const char *path)
{
        struct yaml_error error = {0};
        struct policy *policy = NULL;
        int r = policy_file_load(path, &policy, &error);

        if (r == 0)
                policy_unref(policy);
        if (r != YAML_E_INVALID)
                return run_vm_failed(r, path);
        yaml_error_print(&error);
        yaml_error_done(&error);
        return EXIT_USAGE;
}

int run_vm_prepare(struct run_vm *vm, const struct run_vm_options *options, const struct option_table *table)
{
        int r;

        *vm = (struct run_vm){.options = options, .signal_fd = -1, .kvm_gid = (gid_t)-1};
        vm->has_stdin = session_prepare();
        r = check_options(options, table);
        if (r == 0 && options->policy)
                r = check_policy(options->policy);
        return r == 0 ? run_broker_read_secrets(&options->secrets, &vm->secrets) : r;
}

int run_vm_check_isolation(struct run_vm *vm)
{
        vm->kvm = kvm_usable(&vm->kvm_gid);
        if (vm->kvm || vm->options->allow_unverified)
                return 0;
        fprintf(stderr, "wbctl: KVM is not usable here, and software emulation is no wall against hostile code.\n"
                        "wbctl: On a machine with KVM this needs nothing more; to run without a proven wall, say "
                        "--allow-unverified.\n");
        return EXIT_FAILED;
}

static int find_broker(struct run_vm *vm)
{
        const char *named = vm->options->socket ? vm->options->socket : getenv("WB_SOCKET");
        const char *control = control_client_socket(vm->options->socket);

        if (run_broker_listens(control)) {
                vm->control = control;
                return 0;
        }
        if (named && *named) {
                fprintf(stderr, "wbctl: no broker listens at %s\n", control);
                return EXIT_FAILED;
        }
        vm->own_broker = true;
        vm->control = vm->files.control;
        return run_vm_failed(run_directory_write_broker(&vm->files, !vm->kvm), vm->files.broker_config);
}

/* ---- start */

static void farewell(const void *userdata)
{
        const struct run_vm *vm = userdata;

        run_broker_remove(vm->control, vm->files.name);
}

/* The machine's descriptors are QEMU's too. */
static int start_keeper(struct run_vm *vm, const struct machine *machine, char **broker, char **vsock, char **qemu)
{
        struct keeper_plan plan = {
                .programs =
                        {
                                [KEEPER_BROKER] = {.argv = vm->own_broker ? broker : NULL,
                                        .log_path = vm->files.broker_log},
                                [KEEPER_VSOCK] = {.argv = vsock, .log_path = vm->files.vsock_log, .confined = true},
                                [KEEPER_MACHINE] = {.argv = qemu,
                                        .log_path = vm->files.machine_log,
                                        .confined = true,
                                        .wait_path = vm->files.device},
                        },
                .directory = vm->files.path,
                .uid = vm->files.uid,
                .gid = vm->files.gid,
                .extra_gid = vm->kvm_gid,
                .farewell = farewell,
                .userdata = vm,
        };
        struct keeper_program *program = &plan.programs[KEEPER_MACHINE];

        static_assert(MACHINE_FDS_MAX <= KEEPER_FDS_MAX, "QEMU inherits all that it is told of");
        program->fds_n = machine_fds(machine, program->fds);
        return keeper_start(&plan, &vm->keeper);
}

static int start_programs(struct run_vm *vm, struct machine *machine)
{
        _cleanup_free_ char *wbvsock = NULL;
        _cleanup_free_ char *wbbroker = NULL;
        char **qemu_argv = NULL;
        int r;

        machine->kvm = vm->kvm;
        machine->vsock_path = vm->files.device;
        machine->console_path = vm->files.console;
        if ((r = image_sibling("wbvsock", &wbvsock)) < 0 || (r = image_sibling("wbbroker", &wbbroker)) < 0 ||
                (r = machine_argv(machine, &qemu_argv)) < 0)
                return run_vm_failed(r, "the command lines");

        char *broker_argv[] = {
                wbbroker, (char[]){"--config"}, vm->files.broker_config, (char[]){"--drain-s"}, (char[]){"0"}, NULL};
        char *vsock_argv[] = {wbvsock, (char[]){"--socket"}, vm->files.device, (char[]){"--uds"}, vm->files.vsock,
                (char[]){"--cid"}, vm->files.cid, NULL};

        r = start_keeper(vm, machine, broker_argv, vsock_argv, qemu_argv);
        machine_free_argv(qemu_argv);
        return run_vm_failed(r, "fork");
}

/* ---- while it boots: what we wait for, a signal, or the end of a program, whichever is first */

/* A program that ends before the command has run is why the command cannot run. */
static int check_programs(struct run_vm *vm)
{
        int r = keeper_update(vm->keeper);

        if (r < 0) {
                fprintf(stderr, "wbctl: the process that keeps the VM was killed\n");
                return EXIT_FAILED;
        }
        for (int slot = 0; slot < KEEPER_SLOTS; slot++) {
                int status;

                if (!keeper_ended(vm->keeper, (enum keeper_slot)slot, &status))
                        continue;
                fprintf(stderr, "wbctl: %s ended with %s %d before the command did\n",
                        keeper_slot_name((enum keeper_slot)slot), WIFSIGNALED(status) ? "signal" : "exit status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                run_directory_show_logs(&vm->files);
                return EXIT_FAILED;
        }
        return 0;
}

int run_vm_wait(struct run_vm *vm, int fd, short events, int timeout_ms)
{
        struct pollfd fds[] = {
                {.fd = vm->signal_fd, .events = POLLIN},
                {.fd = keeper_fd(vm->keeper), .events = POLLIN},
                {.fd = fd, .events = events},
        };

        if (poll(fds, 3, timeout_ms) < 0 && errno != EINTR)
                return run_vm_failed(-errno, "poll");
        if (fds[0].revents) {
                struct signalfd_siginfo info;

                if (read(vm->signal_fd, &info, sizeof(info)) == sizeof(info)) {
                        vm->signal = (int)info.ssi_signo;
                        return RUN_VM_E_SIGNAL;
                }
        }
        return fds[1].revents ? check_programs(vm) : 0;
}

static int wait_for_machine(struct run_vm *vm)
{
        int r = 0;

        while (r == 0 && keeper_pid(vm->keeper, KEEPER_MACHINE) == 0)
                r = run_vm_wait(vm, -1, 0, -1);
        return r;
}

static int wait_for_broker(struct run_vm *vm)
{
        uint64_t deadline_ns = clock_monotonic_ns() + BROKER_DEADLINE_NS;

        while (!run_broker_listens(vm->control)) {
                int r = run_vm_wait(vm, -1, 0, RETRY_MS);

                if (r != 0)
                        return r;
                if (clock_monotonic_ns() > deadline_ns) {
                        fprintf(stderr, "wbctl: the broker does not answer at %s\n", vm->control);
                        run_directory_show_logs(&vm->files);
                        return EXIT_FAILED;
                }
        }
        return 0;
}

/* One attempt to reach the agent. 0: it listens; or RUN_VM_E_NOT_YET. */
static int dial_once(struct run_vm *vm, const struct transport *guest)
{
        _cleanup_(transport_dial_done) struct transport_dial dial;
        short events;
        int r = transport_dial_start(&dial, guest, WB_PORT_CONTROL, &events);

        while (r == TRANSPORT_E_AGAIN) {
                int w = run_vm_wait(vm, events ? dial.fd : -1, events, events ? -1 : RETRY_MS);

                if (w != 0)
                        return w;
                r = transport_dial_continue(&dial, &events);
        }
        return r == 0 ? 0 : RUN_VM_E_NOT_YET;
}

static int wait_for_agent(struct run_vm *vm)
{
        const struct transport guest = {.kind = TRANSPORT_HYBRID, .path = vm->files.vsock};
        uint64_t deadline_ns = clock_monotonic_ns() + BOOT_DEADLINE_NS;
        int r;

        while ((r = dial_once(vm, &guest)) == RUN_VM_E_NOT_YET) {
                if (clock_monotonic_ns() > deadline_ns) {
                        fprintf(stderr, "wbctl: the VM's agent did not answer within %llu s\n",
                                (unsigned long long)(BOOT_DEADLINE_NS / NSEC_PER_SEC));
                        run_directory_show_logs(&vm->files);
                        return EXIT_FAILED;
                }
                r = run_vm_wait(vm, -1, 0, RETRY_MS);
                if (r != 0)
                        return r;
        }
        return r;
}

int run_vm_activate(struct run_vm *vm)
{
        int r;

        if ((r = wait_for_machine(vm)) != 0 || (r = wait_for_broker(vm)) != 0)
                return r;

        const struct run_broker_vm added = {
                .name = vm->files.name,
                .vsock_path = vm->files.vsock,
                .pid = keeper_pid(vm->keeper, KEEPER_MACHINE),
                .policy = vm->options->policy ? vm->options->policy : vm->files.no_network,
        };

        /* The broker looks for KVM's VM in the process; a guest that answers has one. */
        if (vm->kvm && (r = wait_for_agent(vm)) != 0)
                return r;
        if ((r = run_broker_add(vm->control, &added)) != 0 || (r = wait_for_agent(vm)) != 0)
                return r;
        return run_broker_activate(vm->control, vm->files.name, vm->secrets);
}

int run_vm_exec(struct run_vm *vm, char **argv, size_t argv_n)
{
        const struct run_exec exec = {
                .vsock_path = vm->files.vsock,
                .argv = argv,
                .argv_n = argv_n,
                .env = &vm->options->env,
                .secrets = &vm->options->secrets,
                .timeout_ms = vm->options->timeout_ms,
                .terminal = vm->options->terminal,
                .has_stdin = vm->has_stdin,
        };
        sigset_t ours;
        int r;

        (void)sigprocmask(SIG_SETMASK, &vm->signals_before, &ours);
        r = run_exec(&exec);
        (void)sigprocmask(SIG_SETMASK, &ours, NULL);
        if (r == EXIT_FAILED)
                (void)check_programs(vm);
        return r;
}

int run_vm_quiesce(struct run_vm *vm)
{
        return run_broker_quiesce(vm->control, vm->files.name);
}

/* ---- from start to end */

/* ---- all of it */

static int take_signals(struct run_vm *vm)
{
        sigset_t signals;

        sigemptyset(&signals);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &signals, &vm->signals_before) < 0)
                return -errno;
        vm->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
        return vm->signal_fd < 0 ? -errno : 0;
}

/* The directory is ours until the keeper has it. */
int run_vm_start(struct run_vm *vm, struct machine *machine)
{
        int r = run_vm_failed(take_signals(vm), "signals");

        if (r == 0)
                r = run_directory_make(&vm->files) < 0 ? EXIT_FAILED : 0;
        if (r != 0)
                return r;
        r = find_broker(vm);
        if (r == 0)
                return start_programs(vm, machine);
        run_directory_remove(&vm->files);
        return r;
}

/* As if the signal had never been blocked. */
static int die_of(const struct run_vm *vm)
{
        (void)signal(vm->signal, SIG_DFL);
        (void)raise(vm->signal);
        (void)sigprocmask(SIG_SETMASK, &vm->signals_before, NULL);
        return 128 + vm->signal;
}

void run_vm_stop(struct run_vm *vm)
{
        keeper_stop(STEAL(vm->keeper));
}

int run_vm_end(struct run_vm *vm, int r)
{
        run_vm_stop(vm);
        vm->signal_fd = close_fd(vm->signal_fd);
        json_decref(STEAL(vm->secrets));
        return r == RUN_VM_E_SIGNAL ? die_of(vm) : r;
}
