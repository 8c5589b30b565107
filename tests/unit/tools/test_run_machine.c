/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_machine.h"

#include <string.h>

#include "tests/support/suite.h"

static struct image image = {.cmdline = (char[]){"console=ttyS0 quiet"}, .kernel_fd = 11, .initrd_fd = 12};

static char **argv_of(bool kvm)
{
        const struct machine machine = {
                .image = &image,
                .memory_bytes = UINT64_C(512) << 20,
                .cpus = 3,
                .kvm = kvm,
                .vsock_path = "/run/d/device",
                .console_path = "/run/d/console",
        };
        char **argv = NULL;

        CU_ASSERT_FATAL(machine_argv(&machine, &argv) == 0);
        return argv;
}

/* The word behind an option; NULL if the option is not there. The next one of the same name is asked for with skip. */
static const char *value_of(char **argv, const char *option, unsigned skip)
{
        for (size_t i = 0; argv[i]; i++)
                if (strcmp(argv[i], option) == 0 && skip-- == 0)
                        return argv[i + 1];
        return NULL;
}

static bool is(const char *value, const char *wanted)
{
        return value && strcmp(value, wanted) == 0;
}

static void test_there_is_no_network_and_one_device(void)
{
        char **argv = argv_of(false);

        CU_ASSERT(is(value_of(argv, "-nic", 0), "none"));
        CU_ASSERT(value_of(argv, "-netdev", 0) == NULL && value_of(argv, "-net", 0) == NULL);
        CU_ASSERT(is(value_of(argv, "-device", 0), "vhost-user-vsock-pci,chardev=vsock"));
        CU_ASSERT(value_of(argv, "-device", 1) == NULL);
        CU_ASSERT(value_of(argv, "-drive", 0) == NULL);
        CU_ASSERT(is(value_of(argv, "-chardev", 0), "socket,id=vsock,path=/run/d/device"));
        CU_ASSERT(strncmp(value_of(argv, "-sandbox", 0), "on,", 3) == 0);
        machine_free_argv(argv);
}

static void test_size_and_image(void)
{
        char **argv = argv_of(false);

        CU_ASSERT(is(value_of(argv, "-smp", 0), "3"));
        CU_ASSERT(is(value_of(argv, "-m", 0), "512M"));
        CU_ASSERT(is(value_of(argv, "-object", 0), "memory-backend-memfd,id=memory,share=on,size=512M"));
        CU_ASSERT(is(value_of(argv, "-kernel", 0), "/proc/self/fd/11"));
        CU_ASSERT(is(value_of(argv, "-initrd", 0), "/proc/self/fd/12"));
        CU_ASSERT(is(value_of(argv, "-serial", 0), "file:/run/d/console"));
        machine_free_argv(argv);
}

static void test_kvm_and_emulation(void)
{
        char **with = argv_of(true);
        char **without = argv_of(false);

        CU_ASSERT(strstr(value_of(with, "-machine", 0), "accel=kvm") != NULL);
        CU_ASSERT(strstr(value_of(without, "-machine", 0), "accel=tcg") != NULL);
        CU_ASSERT(is(value_of(with, "-append", 0), "console=ttyS0 quiet"));
        CU_ASSERT(strncmp(value_of(without, "-append", 0), "console=ttyS0 quiet", 19) == 0);
        machine_free_argv(with);
        machine_free_argv(without);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"there is no network and one device", test_there_is_no_network_and_one_device},
                {"size and image", test_size_and_image},
                {"KVM and emulation", test_kvm_and_emulation},
                CU_TEST_INFO_NULL,
        };

        return suite_run("run_machine", tests);
}
