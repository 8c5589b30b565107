/* SPDX-License-Identifier: Apache-2.0 */
/* wbctl run: one command in a VM of its own, from nothing to nothing. */
#include <stddef.h>

#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/run_boot.h"
#include "tools/wbctl/run_vm.h"
#include "tools/wbctl/secret_file.h"

struct run_options {
        struct run_boot_options boot;
        struct run_vm_options vm;
};

static const struct option_spec specs[] = {
        RUN_BOOT_SPECS(struct run_options, boot),
        RUN_VM_SPECS(struct run_options, vm),
};

static const struct option_table table = {
        .usage = "wbctl run [OPTION]... -- COMMAND [ARGUMENT]...",
        .summary = "Runs a command in a VM without a network card, and takes the VM down again.",
        .example = "wbctl run --policy web.yaml --timeout 1m -- curl -sS https://www.wikipedia.org/",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

/* Nothing of a VM is worth waiting for but its command; then everything ends, whatever came of it. */
static int run_vm(struct run_vm *vm, const struct run_options *o, char **command, size_t command_n)
{
        struct image image = IMAGE_NONE;
        int r = run_vm_check_isolation(vm);

        if (r == 0)
                r = run_boot_image(&o->boot, &image);
        if (r == 0) {
                struct machine machine = run_boot_machine(&o->boot, &image);

                r = run_vm_start(vm, &machine);
        }
        if (r == 0)
                r = run_vm_activate(vm);
        if (r == 0)
                r = run_vm_exec(vm, command, command_n);
        run_vm_stop(vm);
        image_close(&image);
        return r;
}

static int run_with(const struct run_options *o, char **command, size_t command_n)
{
        struct run_vm vm;
        int r = command_n == 0 ? options_usage_error(&table, "which command?") : 0;

        if (r == 0)
                r = run_boot_check(&o->boot, &table);
        if (r != 0)
                return r;
        r = run_vm_prepare(&vm, &o->vm, &table);
        if (r == 0)
                r = run_vm(&vm, o, command, command_n);
        return run_vm_end(&vm, r);
}

int command_run(int argc, char **argv)
{
        struct run_options options = {.boot = RUN_BOOT_DEFAULTS};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        secret_file_wipe_json();
        if (r == 0)
                r = run_with(&options, rest, rest_n);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                r = run_vm_failed(r, "options");
        run_boot_options_done(&options.boot);
        run_vm_options_done(&options.vm);
        return r;
}
