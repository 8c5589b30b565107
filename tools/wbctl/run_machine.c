/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "proto/base/clock.h"

#define QEMU          "qemu-system-x86_64"
#define TSC_SAMPLE_NS (10 * NSEC_PER_MSEC)

/*
 * Software emulation passes the host's time stamp counter on. Told its frequency, the guest's kernel need not find it
 * out, which takes half a second and at times more. 0: not known.
 */
static uint64_t tsc_khz(void)
{
#if defined(__x86_64__)
        uint64_t start_ns = clock_monotonic_ns();
        uint64_t start = __rdtsc();
        uint64_t now_ns;

        do
                now_ns = clock_monotonic_ns();
        while (now_ns - start_ns < TSC_SAMPLE_NS);
        return (__rdtsc() - start) * (NSEC_PER_SEC / 1000) / (now_ns - start_ns);
#else
        return 0;
#endif
}

struct argv_builder {
        char **argv;
        size_t n;
        int error;
};

__attribute__((format(printf, 2, 3))) static void add(struct argv_builder *b, const char *format, ...)
{
        char **grown = reallocarray(b->argv, b->n + 2, sizeof(*grown));
        va_list ap;

        if (!grown) {
                b->error = -ENOMEM;
                return;
        }
        b->argv = grown;
        va_start(ap, format);
        if (vasprintf(&b->argv[b->n], format, ap) < 0) {
                b->argv[b->n] = NULL;
                b->error = -ENOMEM;
        }
        va_end(ap);
        b->n += b->argv[b->n] != NULL;
        b->argv[b->n] = NULL;
}

static void add_words(struct argv_builder *b, const char *const *words)
{
        for (; *words; words++)
                add(b, "%s", *words);
}

static void add_kernel(struct argv_builder *b, const struct machine *m)
{
        uint64_t khz = m->kvm ? 0 : tsc_khz();

        /* By descriptor: QEMU's user need not be able to walk to the image's directory. */
        add(b, "-kernel");
        add(b, "/proc/self/fd/%d", m->image->kernel_fd);
        add(b, "-initrd");
        add(b, "/proc/self/fd/%d", m->image->initrd_fd);
        add(b, "-append");
        if (khz)
                add(b, "%s tsc_early_khz=%llu", m->image->cmdline, (unsigned long long)khz);
        else
                add(b, "%s", m->image->cmdline);
}

size_t machine_fds(const struct machine *m, int ret_fds[MACHINE_FDS_MAX])
{
        ret_fds[0] = m->image->kernel_fd;
        ret_fds[1] = m->image->initrd_fd;
        return 2;
}

int machine_argv(const struct machine *m, char ***ret_argv)
{
        /* No device but what is asked for, and a machine without the parts that only cost boot time. */
        static const char *const fixed[] = {QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-monitor", "none", "-nic", "none", "-sandbox",
                "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", NULL};
        static const char *const vsock[] = {"-device", "vhost-user-vsock-pci,chardev=vsock", NULL};
        struct argv_builder b = {0};

        add_words(&b, fixed);
        add(&b, "-machine");
        add(&b, "q35,sata=off,smbus=off,usb=off,vmport=off,memory-backend=memory,accel=%s", m->kvm ? "kvm" : "tcg");
        add(&b, "-cpu");
        add(&b, "%s", m->kvm ? "host" : "max");
        add(&b, "-smp");
        add(&b, "%llu", (unsigned long long)m->cpus);
        add(&b, "-m");
        add(&b, "%lluM", (unsigned long long)(m->memory_bytes >> 20));
        add(&b, "-object"); /* shared, so that wbvsock can reach the queues */
        add(&b, "memory-backend-memfd,id=memory,share=on,size=%lluM", (unsigned long long)(m->memory_bytes >> 20));
        add(&b, "-chardev");
        add(&b, "socket,id=vsock,path=%s", m->vsock_path);
        add_words(&b, vsock);
        add(&b, "-serial");
        add(&b, "file:%s", m->console_path);
        add_kernel(&b, m);
        if (b.error) {
                machine_free_argv(b.argv);
                return b.error;
        }
        *ret_argv = b.argv;
        return 0;
}

void machine_free_argv(char **argv)
{
        for (size_t i = 0; argv && argv[i]; i++)
                free(argv[i]);
        free(argv);
}
