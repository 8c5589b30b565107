/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl snapshot create: a VM that has booted, and has run what it is to have run, into a directory. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/run_boot.h"
#include "tools/wbctl/run_vm.h"
#include "tools/wbctl/snapshot_command.h"
#include "tools/wbctl/snapshot_directory.h"
#include "tools/wbctl/snapshot_memory.h"
#include "tools/wbctl/snapshot_monitor.h"

struct create_options {
        struct run_boot_options boot;
        struct run_vm_options vm;
};

static const struct option_spec specs[] = {
        RUN_BOOT_SPECS(struct create_options, boot),
        RUN_VM_WARM_SPECS(struct create_options, vm),
};

static const struct option_table table = {
        .usage = "wbctl snapshot create [OPTION]... OUT [-- COMMAND [ARGUMENT]...]",
        .summary =
                "Boots a VM as `wbctl run` does, runs COMMAND in it if there is one, and saves the VM in the new directory "
                "OUT.\nIf COMMAND ends with another status than 0, nothing is saved, and the status is that. What it has "
                "left running\nis saved with the VM, and goes on in each clone. OUT holds the guest's memory: it is as "
                "secret as whatever ran there.",
        .example = "wbctl snapshot create warm -- sh -c 'nohup my-server >/dev/null 2>&1 &'",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

struct create {
        const struct create_options *options;
        const char *out;
        char **command;
        size_t command_n;

        struct run_vm vm;
        struct image image;
        struct snapshot_monitor monitor;
        struct snapshot_machine saved;
        int memory_fd;
        int state_fd;
};

/* What of the machine has to be there again. */
static int describe(struct create *c, const struct machine *machine)
{
        struct snapshot_machine *m = &c->saved;
        uint64_t bytes;
        int r;

        m->kvm = c->vm.kvm;
        m->cpus = machine->cpus;
        m->memory_bytes = machine->memory_bytes;
        (void)snprintf(m->machine, sizeof(m->machine), "%s", MACHINE_TYPE);
        (void)snprintf(m->cpu, sizeof(m->cpu), "%s", machine_cpu(m->kvm));
        machine_processor(m->processor);
        r = sha256_file(c->image.kernel_fd, UINT64_MAX, -1, m->kernel, &bytes);
        if (r == 0)
                r = sha256_file(c->image.initrd_fd, UINT64_MAX, -1, m->initrd, &bytes);
        if (r == 0)
                r = sha256_bytes(c->image.cmdline, strlen(c->image.cmdline), m->cmdline);
        return run_vm_failed(r, c->image.directory);
}

/* Memory and state are ours, so that nothing has to be taken from where QEMU could put something else. */
static int start(struct create *c)
{
        struct machine machine = run_boot_machine(&c->options->boot, &c->image);
        int r = snapshot_memory_new(machine.memory_bytes, &c->memory_fd);

        if (r < 0)
                return run_vm_failed(r, "the VM's memory");
        c->state_fd = memfd_create("wb-state", MFD_CLOEXEC);
        if (c->state_fd < 0)
                return run_vm_failed(-errno, "the VM's state");
        machine.memory_fd = c->memory_fd;
        r = snapshot_monitor_open(&c->monitor, &c->vm, &machine.monitor_fd);
        if (r != 0)
                return r;
        r = run_vm_start(&c->vm, &machine);
        close_fd(machine.monitor_fd);
        /* While it boots. */
        return r == 0 ? describe(c, &machine) : r;
}

static int warm(struct create *c)
{
        int r = c->command_n > 0 ? run_vm_exec(&c->vm, c->command, c->command_n) : 0;

        if (r != 0)
                fprintf(stderr, "wbctl: snapshot: the command's status is %d: nothing is saved\n", r);
        return r;
}

static int create(struct create *c)
{
        int r;

        if ((r = run_vm_check_isolation(&c->vm)) != 0 || (r = run_boot_image(&c->options->boot, &c->image)) != 0 ||
                (r = start(c)) != 0 || (r = snapshot_monitor_greet(&c->monitor, c->saved.qemu)) != 0 ||
                (r = run_vm_activate(&c->vm)) != 0 || (r = warm(c)) != 0 || (r = run_vm_quiesce(&c->vm)) != 0 ||
                (r = snapshot_monitor_save(&c->monitor, c->state_fd)) != 0)
                return r;
        run_vm_stop(&c->vm);
        return snapshot_directory_write(c->out, &c->saved, c->memory_fd, c->state_fd) < 0 ? EXIT_FAILED : 0;
}

static int create_with(const struct create_options *o, const char *out, char **command, size_t command_n)
{
        struct create c = {
                .options = o,
                .out = out,
                .command = command,
                .command_n = command_n,
                .image = IMAGE_NONE,
                .memory_fd = -1,
                .state_fd = -1,
        };
        int r = run_vm_prepare(&c.vm, &o->vm, &table);

        if (r == 0)
                r = snapshot_directory_check(out) < 0 ? EXIT_FAILED : 0;
        if (r == 0)
                r = create(&c);
        snapshot_monitor_close(&c.monitor);
        image_close(&c.image);
        close_fd(c.memory_fd);
        close_fd(c.state_fd);
        return run_vm_end(&c.vm, r);
}

/* OUT, and behind it, if anything, -- and a command. */
static int create_parsed(const struct create_options *o, char **rest, size_t rest_n)
{
        int r = run_boot_check(&o->boot, &table);

        if (r != 0)
                return r;
        if (rest_n == 0)
                return options_usage_error(&table, "which directory?");
        if (rest_n > 1 && strcmp(rest[1], "--") != 0)
                return options_usage_error(&table, "a command stands behind --");
        if (rest_n == 2)
                return options_usage_error(&table, "which command?");
        return create_with(o, rest[0], rest + 2, rest_n > 2 ? rest_n - 2 : 0);
}

int snapshot_create_command(int argc, char **argv)
{
        struct create_options options = {.boot = RUN_BOOT_DEFAULTS};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0)
                r = create_parsed(&options, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = run_vm_failed(r, "options");
        run_boot_options_done(&options.boot);
        run_vm_options_done(&options.vm);
        return r;
}
