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
                .monitor_fd = -1,
                .memory_fd = -1,
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

/* One that can be saved, or is to be restored when there is no image. */
static char **movable_argv(const struct image *from)
{
        const struct machine machine = {
                .image = from,
                .memory_bytes = UINT64_C(256) << 20,
                .cpus = 2,
                .vsock_path = "/run/d/device",
                .console_path = "/run/d/console",
                .monitor_fd = 21,
                .memory_fd = 22,
        };
        int fds[MACHINE_FDS_MAX];
        char **argv = NULL;

        CU_ASSERT(machine_fds(&machine, fds) == (from ? 4 : 2));
        CU_ASSERT(fds[0] == (from ? 11 : 21) && fds[1] == (from ? 12 : 22));
        CU_ASSERT_FATAL(machine_argv(&machine, &argv) == 0);
        return argv;
}

static void test_a_machine_that_can_be_saved(void)
{
        char **argv = movable_argv(&image);

        CU_ASSERT(is(value_of(argv, "-object", 0),
                "memory-backend-file,id=memory,share=on,size=256M,mem-path=/proc/self/fd/22"));
        CU_ASSERT(is(value_of(argv, "-chardev", 1), "socket,id=monitor,fd=21"));
        CU_ASSERT(is(value_of(argv, "-mon", 0), "chardev=monitor,mode=control"));
        CU_ASSERT(is(value_of(argv, "-device", 0), "pcie-root-port,id=vsockport,chassis=1,slot=1"));
        CU_ASSERT(is(value_of(argv, "-device", 1), "vhost-user-vsock-pci,chardev=vsock,id=vsock0,bus=vsockport"));
        CU_ASSERT(value_of(argv, "-device", 2) == NULL && value_of(argv, "-incoming", 0) == NULL);
        CU_ASSERT(is(value_of(argv, "-nic", 0), "none") && strncmp(value_of(argv, "-sandbox", 0), "on,", 3) == 0);
        CU_ASSERT(value_of(argv, "-kernel", 0) != NULL);
        machine_free_argv(argv);
}

static void test_a_machine_from_a_snapshot(void)
{
        char **saved = movable_argv(&image);
        char **argv = movable_argv(NULL);
        static const char *const same[] = {"-machine", "-cpu", "-smp", "-m", "-object", "-nic", "-sandbox", "-serial"};

        for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
                CU_ASSERT(is(value_of(argv, same[i], 0), value_of(saved, same[i], 0)));
        CU_ASSERT(is(value_of(argv, "-incoming", 0), "defer") && value_of(argv, "-incoming", 1) == NULL);
        CU_ASSERT(is(value_of(argv, "-device", 0), value_of(saved, "-device", 0)));
        CU_ASSERT(value_of(argv, "-device", 1) == NULL); /* the monitor plugs it in */
        CU_ASSERT(value_of(argv, "-kernel", 0) == NULL && value_of(argv, "-append", 0) == NULL);
        machine_free_argv(saved);
        machine_free_argv(argv);
}

static void test_a_processor_has_a_name(void)
{
        char text[MACHINE_PROCESSOR_BYTES];
        char again[MACHINE_PROCESSOR_BYTES];

        machine_processor(text);
        machine_processor(again);
        CU_ASSERT(text[0] > ' ' && text[strlen(text) - 1] > ' ');
        CU_ASSERT_STRING_EQUAL(text, again);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"there is no network and one device", test_there_is_no_network_and_one_device},
                {"size and image", test_size_and_image},
                {"KVM and emulation", test_kvm_and_emulation},
                {"a machine that can be saved", test_a_machine_that_can_be_saved},
                {"a machine from a snapshot", test_a_machine_from_a_snapshot},
                {"a processor has a name", test_a_processor_has_a_name},
                CU_TEST_INFO_NULL,
        };

        return suite_run("run_machine", tests);
}
