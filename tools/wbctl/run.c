/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl run: one command in a VM of its own, from nothing to nothing. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/options.h"
#include "proto/wire/limits.h"
#include "proto/wire/transport.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/policy_file.h"
#include "tools/wbctl/run_broker.h"
#include "tools/wbctl/run_directory.h"
#include "tools/wbctl/run_exec.h"
#include "tools/wbctl/run_image.h"
#include "tools/wbctl/run_keeper.h"
#include "tools/wbctl/run_kvm.h"
#include "tools/wbctl/run_machine.h"
#include "tools/wbctl/secret_file.h"
#include "tools/wbctl/session.h"

#define MEMORY_DEFAULT_BYTES (UINT64_C(512) << 20)
#define BOOT_DEADLINE_NS     (120 * NSEC_PER_SEC) /* software emulation on a busy machine; a boot takes 3 s */
#define BROKER_DEADLINE_NS   (30 * NSEC_PER_SEC)
#define RETRY_MS             20

struct run_options {
        const char *policy;
        const char *image;
        struct option_strings image_keys;
        uint64_t memory_bytes;
        uint64_t cpus;
        struct option_strings env;
        struct option_strings secrets;
        uint64_t timeout_ms;
        bool allow_unverified;
        bool terminal;
        const char *socket;
};

static const struct option_spec specs[] = {
        {"policy", 0, OPTION_STRING, offsetof(struct run_options, policy), "FILE",
                "what the VM may reach; absent: nothing"},
        {"image", 0, OPTION_STRING, offsetof(struct run_options, image), "DIR",
                "a guest image; absent: the default one"},
        {"image-key", 0, OPTION_STRINGS, offsetof(struct run_options, image_keys), "PUB",
                "boot only an image signed with this key's private half (WB_IMAGE_KEY)"},
        {"memory", 0, OPTION_SIZE, offsetof(struct run_options, memory_bytes), "SIZE", "of the VM (512M)"},
        {"cpus", 0, OPTION_U64, offsetof(struct run_options, cpus), "N", "of the VM (1)"},
        {"env", 0, OPTION_STRINGS, offsetof(struct run_options, env), "NAME=VALUE", "into the command's environment"},
        {"secret", 0, OPTION_STRINGS, offsetof(struct run_options, secrets), "NAME=FILE",
                "a secret; the command finds its path in NAME_FILE"},
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct run_options, timeout_ms), "DURATION",
                "of the command; then it is killed, exit 124"},
        {"allow-unverified", 0, OPTION_FLAG, offsetof(struct run_options, allow_unverified), NULL,
                "also without KVM, where nothing proves the isolation"},
        {"tty", 't', OPTION_FLAG, offsetof(struct run_options, terminal), NULL, "give the command a terminal"},
        {"socket", 0, OPTION_STRING, offsetof(struct run_options, socket), "PATH",
                "the broker's control socket (WB_SOCKET); without a broker, the run's own"},
};

static const struct option_table table = {
        .usage = "wbctl run [OPTION]... -- COMMAND [ARGUMENT]...",
        .summary = "Runs a command in a VM without a network card, and takes the VM down again.",
        .example = "wbctl run --policy web.yaml --timeout 1m -- curl -sS https://www.wikipedia.org/",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

/*
 * A step of a run answers 0, or the exit status that the run ends with, said on stderr; or one of these, which no exit
 * status is.
 */
#define RUN_E_SIGNAL  (-1) /* a signal to us: run->signal */
#define RUN_E_NOT_YET (-2)

struct run {
        const struct run_options *options;
        char **command;
        size_t command_n;

        struct run_directory files;
        struct image image;
        struct keeper *keeper;
        const char *control; /* of the broker in use */
        bool own_broker;
        bool has_stdin;
        bool kvm;
        gid_t kvm_gid;
        json_t *secrets;

        sigset_t signals_before;
        int signal_fd;
        int signal;
};

/* The exit status of an error that nobody has said yet; 0 stays 0. */
static int failed(int error, const char *what)
{
        if (error == 0)
                return 0;
        fprintf(stderr, "wbctl: run: %s: %s\n", what, strerror(-error));
        return EXIT_FAILED;
}

/* ---- before anything is started */

static int check_options(const struct run_options *o, size_t command_n)
{
        if (command_n == 0)
                return options_usage_error(&table, "which command?");
        if (o->memory_bytes < MACHINE_MEMORY_MIN_BYTES)
                return options_usage_error(&table, "--memory: a VM needs at least %lluM",
                        (unsigned long long)(MACHINE_MEMORY_MIN_BYTES >> 20));
        if (o->cpus < 1 || o->cpus > MACHINE_CPUS_MAX)
                return options_usage_error(&table, "--cpus: from 1 to %u", MACHINE_CPUS_MAX);
        for (size_t i = 0; i < o->env.n; i++)
                if (!strchr(o->env.items[i], '=') || o->env.items[i][0] == '=')
                        return options_usage_error(&table, "--env wants NAME=VALUE, not '%s'", o->env.items[i]);
        for (size_t i = 0; i < o->secrets.n; i++)
                if (!strchr(o->secrets.items[i], '=') || o->secrets.items[i][0] == '=')
                        return options_usage_error(&table, "--secret wants NAME=FILE");
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
                return failed(r, path);
        yaml_error_print(&error);
        yaml_error_done(&error);
        return EXIT_USAGE;
}

static int check_machine(struct run *run)
{
        run->kvm_gid = (gid_t)-1;
        run->kvm = kvm_usable(&run->kvm_gid);
        if (run->kvm || run->options->allow_unverified)
                return 0;
        fprintf(stderr, "wbctl: run: KVM is not usable here, and software emulation is no wall against hostile code.\n"
                        "wbctl: run: On a machine with KVM this needs nothing more; to run without a proven wall, say "
                        "--allow-unverified.\n");
        return EXIT_FAILED;
}

static int open_image(struct run *run, const char *directory)
{
        struct image_keys keys;
        int r = image_keys_load(&run->options->image_keys, &keys);

        if (r < 0)
                return r;
        r = keys.n > 0 ? image_open_verified(directory, &keys, &run->image) : image_open(directory, &run->image);
        image_keys_done(&keys);
        return r;
}

static int find_image(struct run *run)
{
        _cleanup_free_ char *built = NULL;
        const char *directory = run->options->image;

        if (!directory) {
                if (image_build(NULL, &built) < 0)
                        return EXIT_FAILED;
                directory = built;
        }
        return open_image(run, directory) < 0 ? EXIT_FAILED : 0;
}

static int find_broker(struct run *run)
{
        const char *named = run->options->socket ? run->options->socket : getenv("WB_SOCKET");
        const char *control = control_client_socket(run->options->socket);

        if (run_broker_listens(control)) {
                run->control = control;
                return 0;
        }
        if (named && *named) {
                fprintf(stderr, "wbctl: run: no broker listens at %s\n", control);
                return EXIT_FAILED;
        }
        run->own_broker = true;
        run->control = run->files.control;
        return failed(run_directory_write_broker(&run->files, !run->kvm), run->files.broker_config);
}

/* ---- start */

static void farewell(const void *userdata)
{
        const struct run *run = userdata;

        run_broker_remove(run->control, run->files.name);
}

static int start_programs(struct run *run)
{
        _cleanup_free_ char *wbvsock = NULL;
        _cleanup_free_ char *wbbroker = NULL;
        const struct machine machine = {
                .image = &run->image,
                .memory_bytes = run->options->memory_bytes,
                .cpus = run->options->cpus,
                .kvm = run->kvm,
                .vsock_path = run->files.device,
                .console_path = run->files.console,
        };
        char **qemu_argv = NULL;
        int r;

        if ((r = image_sibling("wbvsock", &wbvsock)) < 0 || (r = image_sibling("wbbroker", &wbbroker)) < 0 ||
                (r = machine_argv(&machine, &qemu_argv)) < 0)
                return failed(r, "the command lines");

        char *broker_argv[] = {
                wbbroker, (char[]){"--config"}, run->files.broker_config, (char[]){"--drain-s"}, (char[]){"0"}, NULL};
        char *vsock_argv[] = {wbvsock, (char[]){"--socket"}, run->files.device, (char[]){"--uds"}, run->files.vsock,
                (char[]){"--cid"}, (char[]){"3"}, NULL};
        const struct keeper_plan plan = {
                .programs =
                        {
                                [KEEPER_BROKER] = {.argv = run->own_broker ? broker_argv : NULL,
                                        .log_path = run->files.broker_log},
                                [KEEPER_VSOCK] = {.argv = vsock_argv,
                                        .log_path = run->files.vsock_log,
                                        .confined = true},
                                [KEEPER_MACHINE] = {.argv = qemu_argv,
                                        .log_path = run->files.machine_log,
                                        .confined = true,
                                        .wait_path = run->files.device,
                                        .fds = {run->image.kernel_fd, run->image.initrd_fd},
                                        .fds_n = 2},
                        },
                .directory = run->files.path,
                .uid = run->files.uid,
                .gid = run->files.gid,
                .extra_gid = run->kvm_gid,
                .farewell = farewell,
                .userdata = run,
        };

        r = keeper_start(&plan, &run->keeper);
        machine_free_argv(qemu_argv);
        return failed(r, "fork");
}

/* ---- while it boots: what we wait for, a signal, or the end of a program, whichever is first */

/* A program that ends before the command has run is why the command cannot run. */
static int check_programs(struct run *run)
{
        int r = keeper_update(run->keeper);

        if (r < 0) {
                fprintf(stderr, "wbctl: run: the process that keeps the VM was killed\n");
                return EXIT_FAILED;
        }
        for (int slot = 0; slot < KEEPER_SLOTS; slot++) {
                int status;

                if (!keeper_ended(run->keeper, (enum keeper_slot)slot, &status))
                        continue;
                fprintf(stderr, "wbctl: run: %s ended with %s %d before the command did\n",
                        keeper_slot_name((enum keeper_slot)slot), WIFSIGNALED(status) ? "signal" : "exit status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                run_directory_show_logs(&run->files);
                return EXIT_FAILED;
        }
        return 0;
}

/* fd may be -1. 0 when fd is ready or the time is over. */
static int wait_for(struct run *run, int fd, short events, int timeout_ms)
{
        struct pollfd fds[] = {
                {.fd = run->signal_fd, .events = POLLIN},
                {.fd = keeper_fd(run->keeper), .events = POLLIN},
                {.fd = fd, .events = events},
        };

        if (poll(fds, 3, timeout_ms) < 0 && errno != EINTR)
                return failed(-errno, "poll");
        if (fds[0].revents) {
                struct signalfd_siginfo info;

                if (read(run->signal_fd, &info, sizeof(info)) == sizeof(info)) {
                        run->signal = (int)info.ssi_signo;
                        return RUN_E_SIGNAL;
                }
        }
        return fds[1].revents ? check_programs(run) : 0;
}

static int wait_for_machine(struct run *run)
{
        int r = 0;

        while (r == 0 && keeper_pid(run->keeper, KEEPER_MACHINE) == 0)
                r = wait_for(run, -1, 0, -1);
        return r;
}

static int wait_for_broker(struct run *run)
{
        uint64_t deadline_ns = clock_monotonic_ns() + BROKER_DEADLINE_NS;

        while (!run_broker_listens(run->control)) {
                int r = wait_for(run, -1, 0, RETRY_MS);

                if (r != 0)
                        return r;
                if (clock_monotonic_ns() > deadline_ns) {
                        fprintf(stderr, "wbctl: run: the broker does not answer at %s\n", run->control);
                        run_directory_show_logs(&run->files);
                        return EXIT_FAILED;
                }
        }
        return 0;
}

/* One attempt to reach the agent. 0: it listens; or RUN_E_NOT_YET. */
static int dial_once(struct run *run, const struct transport *guest)
{
        _cleanup_(transport_dial_done) struct transport_dial dial;
        short events;
        int r = transport_dial_start(&dial, guest, WB_PORT_CONTROL, &events);

        while (r == TRANSPORT_E_AGAIN) {
                int w = wait_for(run, events ? dial.fd : -1, events, events ? -1 : RETRY_MS);

                if (w != 0)
                        return w;
                r = transport_dial_continue(&dial, &events);
        }
        return r == 0 ? 0 : RUN_E_NOT_YET;
}

static int wait_for_agent(struct run *run)
{
        const struct transport guest = {.kind = TRANSPORT_HYBRID, .path = run->files.vsock};
        uint64_t deadline_ns = clock_monotonic_ns() + BOOT_DEADLINE_NS;
        int r;

        while ((r = dial_once(run, &guest)) == RUN_E_NOT_YET) {
                if (clock_monotonic_ns() > deadline_ns) {
                        fprintf(stderr, "wbctl: run: the VM's agent did not answer within %llu s\n",
                                (unsigned long long)(BOOT_DEADLINE_NS / NSEC_PER_SEC));
                        run_directory_show_logs(&run->files);
                        return EXIT_FAILED;
                }
                r = wait_for(run, -1, 0, RETRY_MS);
                if (r != 0)
                        return r;
        }
        return r;
}

/* To a guest that takes commands. */
static int boot(struct run *run)
{
        const char *policy = run->options->policy ? run->options->policy : run->files.no_network;
        int r;

        if ((r = wait_for_machine(run)) != 0 || (r = wait_for_broker(run)) != 0)
                return r;

        const struct run_broker_vm vm = {
                .name = run->files.name,
                .vsock_path = run->files.vsock,
                .pid = keeper_pid(run->keeper, KEEPER_MACHINE),
                .policy = policy,
        };

        /* The broker looks for KVM's VM in the process; a guest that answers has one. */
        if (run->kvm && (r = wait_for_agent(run)) != 0)
                return r;
        if ((r = run_broker_add(run->control, &vm)) != 0 || (r = wait_for_agent(run)) != 0)
                return r;
        return run_broker_activate(run->control, run->files.name, run->secrets);
}

/* From here on signals are the command's: the session passes them on. */
static int run_command(struct run *run)
{
        const struct run_exec exec = {
                .vsock_path = run->files.vsock,
                .argv = run->command,
                .argv_n = run->command_n,
                .env = &run->options->env,
                .secrets = &run->options->secrets,
                .timeout_ms = run->options->timeout_ms,
                .terminal = run->options->terminal,
                .has_stdin = run->has_stdin,
        };

        (void)sigprocmask(SIG_SETMASK, &run->signals_before, NULL);
        return run_exec(&exec);
}

/* ---- all of it */

static int take_signals(struct run *run)
{
        sigset_t signals;

        sigemptyset(&signals);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &signals, &run->signals_before) < 0)
                return -errno;
        run->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
        return run->signal_fd < 0 ? -errno : 0;
}

/* The directory is ours until the keeper has it. */
static int start(struct run *run)
{
        int r = run_directory_make(&run->files) < 0 ? EXIT_FAILED : 0;

        if (r != 0)
                return r;
        r = find_broker(run);
        if (r == 0)
                return start_programs(run);
        run_directory_remove(&run->files);
        return r;
}

/* Nothing of a VM is worth waiting for but its command; then everything ends, whatever came of it. */
static int run_vm(struct run *run)
{
        int r = failed(take_signals(run), "signals");

        if (r == 0)
                r = start(run);
        if (r == 0)
                r = boot(run);
        if (r == 0 && (r = run_command(run)) == EXIT_FAILED)
                (void)check_programs(run);
        keeper_stop(run->keeper);
        close_fd(run->signal_fd);
        return r;
}

/* As if the signal had never been blocked. */
static int die_of(const struct run *run)
{
        (void)signal(run->signal, SIG_DFL);
        (void)raise(run->signal);
        (void)sigprocmask(SIG_SETMASK, &run->signals_before, NULL);
        return 128 + run->signal;
}

static int run_with(const struct run_options *options, char **command, size_t command_n)
{
        struct run run = {
                .options = options,
                .command = command,
                .command_n = command_n,
                .image = {.kernel_fd = -1, .initrd_fd = -1},
                .signal_fd = -1,
                .has_stdin = session_prepare(),
        };
        int r = check_options(options, command_n);

        if (r == 0 && options->policy)
                r = check_policy(options->policy);
        if (r == 0)
                r = run_broker_read_secrets(&options->secrets, &run.secrets);
        if (r == 0)
                r = check_machine(&run);
        if (r == 0)
                r = find_image(&run);
        if (r == 0)
                r = run_vm(&run);
        json_decref(run.secrets);
        image_close(&run.image);
        return r == RUN_E_SIGNAL ? die_of(&run) : r;
}

int command_run(int argc, char **argv)
{
        struct run_options options = {.memory_bytes = MEMORY_DEFAULT_BYTES, .cpus = 1};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        secret_file_wipe_json();
        if (r == 0)
                r = run_with(&options, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = failed(r, "options");
        option_strings_done(&options.image_keys);
        option_strings_done(&options.env);
        option_strings_done(&options.secrets);
        return r;
}
