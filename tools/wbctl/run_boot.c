/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_boot.h"

#include "proto/base/cleanup.h"
#include "tools/wbctl/command.h"

void run_boot_options_done(struct run_boot_options *o)
{
        option_strings_done(&o->image_keys);
}

int run_boot_check(const struct run_boot_options *o, const struct option_table *table)
{
        if (o->memory_bytes < MACHINE_MEMORY_MIN_BYTES)
                return options_usage_error(table, "--memory: a VM needs at least %lluM",
                        (unsigned long long)(MACHINE_MEMORY_MIN_BYTES >> 20));
        if (o->cpus < 1 || o->cpus > MACHINE_CPUS_MAX)
                return options_usage_error(table, "--cpus: from 1 to %u", MACHINE_CPUS_MAX);
        return 0;
}

static int open_image(const struct run_boot_options *o, const char *directory, struct image *ret)
{
        struct image_keys keys;
        int r = image_keys_load(&o->image_keys, &keys);

        if (r < 0)
                return r;
        r = keys.n > 0 ? image_open_verified(directory, &keys, ret) : image_open(directory, ret);
        image_keys_done(&keys);
        return r;
}

int run_boot_image(const struct run_boot_options *o, struct image *ret)
{
        _cleanup_free_ char *built = NULL;
        const char *directory = o->image;

        if (!directory) {
                if (image_build(NULL, &built) < 0)
                        return EXIT_FAILED;
                directory = built;
        }
        return open_image(o, directory, ret) < 0 ? EXIT_FAILED : 0;
}

struct machine run_boot_machine(const struct run_boot_options *o, const struct image *image)
{
        struct machine machine = MACHINE_NONE;

        machine.image = image;
        machine.memory_bytes = o->memory_bytes & ~(MACHINE_MEMORY_UNIT_BYTES - 1);
        machine.cpus = o->cpus;
        return machine;
}
