/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl snapshot restore: one command in a clone of a saved VM. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/run_vm.h"
#include "tools/wbctl/secret_file.h"
#include "tools/wbctl/snapshot_command.h"
#include "tools/wbctl/snapshot_directory.h"
#include "tools/wbctl/snapshot_memory.h"
#include "tools/wbctl/snapshot_monitor.h"

struct restore_options {
        struct run_vm_options vm;
};

static const struct option_spec specs[] = {
        RUN_VM_SPECS(struct restore_options, vm),
};

static const struct option_table table = {
        .usage = "wbctl snapshot restore [OPTION]... DIR -- COMMAND [ARGUMENT]...",
        .summary =
                "Runs a command as `wbctl run` does, in a clone of the VM that `wbctl snapshot create` saved in DIR.\nThe "
                "clone has memory, randomness, time, identity, secrets and a policy of its own before anything in it runs.\n"
                "The same DIR serves any number of clones, also at once.",
        .example = "wbctl snapshot restore --policy web.yaml warm -- curl -sS https://www.wikipedia.org/",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

struct restore {
        const char *directory;
        struct run_vm vm;
        struct snapshot snapshot;
        struct snapshot_monitor monitor;
        int memory_fd; /* the clone's own */
};

static int refuse(const struct restore *c, const char *what, const char *saved, const char *here)
{
        fprintf(stderr, "wbctl: snapshot: %s: %s was '%s' and is '%s' here; a snapshot runs only where it was made\n",
                c->directory, what, saved, here);
        return EXIT_FAILED;
}

/* All but QEMU's version, which QEMU tells. */
static int check_machine(const struct restore *c)
{
        const struct snapshot_machine *m = &c->snapshot.machine;
        char processor[MACHINE_PROCESSOR_BYTES];

        machine_processor(processor);
        if (m->kvm != c->vm.kvm)
                return refuse(c, "QEMU's accelerator", m->kvm ? "kvm" : "tcg", c->vm.kvm ? "kvm" : "tcg");
        if (strcmp(m->machine, MACHINE_TYPE) != 0)
                return refuse(c, "the machine", m->machine, MACHINE_TYPE);
        if (strcmp(m->cpu, machine_cpu(m->kvm)) != 0)
                return refuse(c, "the guest's processor", m->cpu, machine_cpu(m->kvm));
        if (strcmp(m->processor, processor) != 0)
                return refuse(c, "the processor", m->processor, processor);
        return 0;
}

static int start(struct restore *c)
{
        struct machine machine = MACHINE_NONE;
        int r = snapshot_memory_new(c->snapshot.machine.memory_bytes, &c->memory_fd);

        if (r < 0)
                return run_vm_failed(r, "the VM's memory");
        machine.memory_bytes = c->snapshot.machine.memory_bytes;
        machine.cpus = c->snapshot.machine.cpus;
        machine.memory_fd = c->memory_fd;
        r = snapshot_monitor_open(&c->monitor, &c->vm, &machine.monitor_fd);
        if (r != 0)
                return r;
        r = run_vm_start(&c->vm, &machine);
        close_fd(machine.monitor_fd);
        return r;
}

/* While QEMU starts, which touches none of it. */
static int copy_memory(struct restore *c)
{
        uint64_t bytes = c->snapshot.machine.memory_bytes;
        uint64_t offset = 0;

        while (offset < bytes) {
                int r = snapshot_memory_read_some(c->snapshot.memory_fd, bytes, c->memory_fd, &offset);

                if (r < 0)
                        return run_vm_failed(r, c->directory);
                r = run_vm_wait(&c->vm, -1, 0, 0);
                if (r != 0)
                        return r;
        }
        return 0;
}

static int load(struct restore *c)
{
        char version[SNAPSHOT_MACHINE_TEXT_BYTES];
        int r = snapshot_monitor_greet(&c->monitor, version);

        if (r == 0 && strcmp(version, c->snapshot.machine.qemu) != 0)
                r = refuse(c, "QEMU's version", c->snapshot.machine.qemu, version);
        if (r == 0)
                r = snapshot_monitor_load(&c->monitor, c->snapshot.state_fd);
        return r == 0 ? snapshot_monitor_continue(&c->monitor) : r;
}

static int restore(struct restore *c, char **command, size_t command_n)
{
        int r;

        if ((r = run_vm_check_isolation(&c->vm)) != 0 ||
                (r = snapshot_directory_open(c->directory, &c->snapshot) < 0 ? EXIT_FAILED : 0) != 0 ||
                (r = check_machine(c)) != 0 || (r = start(c)) != 0 || (r = copy_memory(c)) != 0 || (r = load(c)) != 0 ||
                (r = run_vm_activate(&c->vm)) != 0)
                return r;
        return run_vm_exec(&c->vm, command, command_n);
}

static int restore_with(const struct restore_options *o, const char *directory, char **command, size_t command_n)
{
        struct restore c = {.directory = directory, .snapshot = SNAPSHOT_NONE, .memory_fd = -1};
        int r = run_vm_prepare(&c.vm, &o->vm, &table);

        if (r == 0)
                r = restore(&c, command, command_n);
        snapshot_monitor_close(&c.monitor);
        snapshot_close(&c.snapshot);
        close_fd(c.memory_fd);
        return run_vm_end(&c.vm, r);
}

static int restore_parsed(const struct restore_options *o, char **rest, size_t rest_n)
{
        if (rest_n == 0)
                return options_usage_error(&table, "which snapshot?");
        if (rest_n < 3 || strcmp(rest[1], "--") != 0)
                return options_usage_error(&table, "which command? It stands behind --");
        return restore_with(o, rest[0], rest + 2, rest_n - 2);
}

int snapshot_restore_command(int argc, char **argv)
{
        struct restore_options options = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        secret_file_wipe_json();
        if (r == 0)
                r = restore_parsed(&options, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = run_vm_failed(r, "options");
        run_vm_options_done(&options.vm);
        return r;
}
