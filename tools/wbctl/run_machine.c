/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "proto/base/clock.h"

#define QEMU          "qemu-system-x86_64"
#define VSOCK         MACHINE_VSOCK_DRIVER ",chardev=" MACHINE_VSOCK_CHARDEV
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

/* Shared, so that wbvsock can reach the queues. */
static void add_memory(struct argv_builder *b, const struct machine *m)
{
        unsigned long long mib = m->memory_bytes / MACHINE_MEMORY_UNIT_BYTES;

        add(b, "-m");
        add(b, "%lluM", mib);
        add(b, "-object");
        if (m->memory_fd < 0)
                add(b, "memory-backend-memfd,id=memory,share=on,size=%lluM", mib);
        else
                add(b, "memory-backend-file,id=memory,share=on,size=%lluM,mem-path=/proc/self/fd/%d", mib,
                        m->memory_fd);
}

/* Behind a port of its own the device can be plugged and unplugged. */
static void add_devices(struct argv_builder *b, const struct machine *m)
{
        add(b, "-chardev");
        add(b, "socket,id=" MACHINE_VSOCK_CHARDEV ",path=%s", m->vsock_path);
        if (m->monitor_fd < 0) {
                add(b, "-device");
                add(b, VSOCK);
                return;
        }
        add(b, "-chardev");
        add(b, "socket,id=monitor,fd=%d", m->monitor_fd);
        add(b, "-mon");
        add(b, "chardev=monitor,mode=control");
        add(b, "-device");
        add(b, "pcie-root-port,id=" MACHINE_VSOCK_BUS ",chassis=1,slot=1");
        if (m->image) {
                add(b, "-device");
                add(b, VSOCK ",id=" MACHINE_VSOCK_ID ",bus=" MACHINE_VSOCK_BUS);
        }
}

const char *machine_cpu(bool kvm)
{
        return kvm ? "host" : "max";
}

int machine_argv(const struct machine *m, char ***ret_argv)
{
        /* No device but what is asked for, and a machine without the parts that only cost boot time. */
        static const char *const fixed[] = {QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-monitor", "none", "-nic", "none", "-sandbox",
                "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", NULL};
        static const char *const waiting[] = {"-incoming", "defer", "-S", NULL};
        struct argv_builder b = {0};

        add_words(&b, fixed);
        add(&b, "-machine");
        add(&b, MACHINE_TYPE ",memory-backend=memory,accel=%s", m->kvm ? "kvm" : "tcg");
        add(&b, "-cpu");
        add(&b, "%s", machine_cpu(m->kvm));
        add(&b, "-smp");
        add(&b, "%llu", (unsigned long long)m->cpus);
        add_memory(&b, m);
        add_devices(&b, m);
        add(&b, "-serial");
        add(&b, "file:%s", m->console_path);
        if (m->image)
                add_kernel(&b, m);
        else
                add_words(&b, waiting);
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

size_t machine_fds(const struct machine *m, int ret_fds[MACHINE_FDS_MAX])
{
        const int fds[MACHINE_FDS_MAX] = {
                m->image ? m->image->kernel_fd : -1, m->image ? m->image->initrd_fd : -1, m->monitor_fd, m->memory_fd};
        size_t n = 0;

        for (size_t i = 0; i < MACHINE_FDS_MAX; i++)
                if (fds[i] >= 0)
                        ret_fds[n++] = fds[i];
        return n;
}

void machine_processor(char ret_text[MACHINE_PROCESSOR_BYTES])
{
        char text[MACHINE_PROCESSOR_BYTES] = "unknown";
        char *start = text;
        size_t n;

#if defined(__x86_64__)
        for (unsigned leaf = 0; leaf < 3; leaf++) {
                unsigned words[4];

                if (!__get_cpuid(0x80000002u + leaf, &words[0], &words[1], &words[2], &words[3]))
                        break;
                memcpy(text + leaf * sizeof(words), words, sizeof(words));
        }
#endif
        for (char *c = text; *c; c++)
                if (*c < ' ' || *c > '~')
                        *c = '?';
        start += strspn(start, " ");
        n = strlen(start);
        while (n > 0 && start[n - 1] == ' ')
                n--;
        (void)snprintf(ret_text, MACHINE_PROCESSOR_BYTES, "%.*s", (int)n, n > 0 ? start : "unknown");
}
