/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_kvm.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"

#if defined(__x86_64__)

#define CODE_ADDRESS 0x1000u
#define CODE_BYTES   0x1000u

/* Some 32,000 instructions: 20 microseconds of a processor, 200 milliseconds of an interpreter. */
#define CODE_MOST_NS  (10 * NSEC_PER_MSEC)
#define PROBE_MOST_US 500000

static const uint8_t code[] = {
        0xb9, 0x00, 0x40, /* mov $0x4000, %cx */
        0x49,             /* dec %cx */
        0x75, 0xfd,       /* jnz to the dec */
        0xf4,             /* hlt */
};

static void on_alarm(int number)
{
        (void)number; /* KVM_RUN ends with EINTR */
}

static uint64_t processor_ns(void)
{
        struct timespec t;

        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Real mode with code at CODE_ADDRESS: all segments start at 0. */
static bool set_registers(int vcpu)
{
        struct kvm_regs registers = {.rip = CODE_ADDRESS, .rflags = 2};
        struct kvm_sregs segments;

        if (ioctl(vcpu, KVM_GET_SREGS, &segments) < 0)
                return false;
        segments.cs.base = 0;
        segments.cs.selector = 0;
        return ioctl(vcpu, KVM_SET_SREGS, &segments) == 0 && ioctl(vcpu, KVM_SET_REGS, &registers) == 0;
}

static bool run_to_halt(int vcpu, const struct kvm_run *state)
{
        const struct itimerval limit = {.it_value = {.tv_usec = PROBE_MOST_US}};
        const struct itimerval none = {0};
        struct sigaction action = {.sa_handler = on_alarm};
        struct sigaction before;

        if (sigaction(SIGALRM, &action, &before) < 0 || setitimer(ITIMER_REAL, &limit, NULL) < 0)
                return false;

        uint64_t start_ns = processor_ns();
        bool halted = ioctl(vcpu, KVM_RUN, 0) == 0 && state->exit_reason == KVM_EXIT_HLT;
        uint64_t taken_ns = processor_ns() - start_ns;

        (void)setitimer(ITIMER_REAL, &none, NULL);
        (void)sigaction(SIGALRM, &before, NULL);
        return halted && taken_ns <= CODE_MOST_NS;
}

static bool run_on_vcpu(int kvm, int vcpu)
{
        int state_bytes = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

        if (state_bytes < (int)sizeof(struct kvm_run) || !set_registers(vcpu))
                return false;

        void *state = mmap(NULL, (size_t)state_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);

        if (state == MAP_FAILED)
                return false;

        bool fast = run_to_halt(vcpu, state);

        (void)munmap(state, (size_t)state_bytes);
        return fast;
}

static bool runs_code(int kvm, int vm)
{
        void *memory = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED)
                return false;
        memcpy(memory, code, sizeof(code));

        struct kvm_userspace_memory_region region = {
                .guest_phys_addr = CODE_ADDRESS,
                .memory_size = CODE_BYTES,
                .userspace_addr = (uintptr_t)memory,
        };
        bool runs = false;

        if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) == 0) {
                _cleanup_close_ int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);

                runs = vcpu >= 0 && run_on_vcpu(kvm, vcpu);
        }
        (void)munmap(memory, CODE_BYTES);
        return runs;
}

#else

static bool runs_code(int kvm, int vm)
{
        (void)kvm;
        (void)vm;
        return true;
}

#endif

bool kvm_usable(gid_t *ret_gid)
{
        _cleanup_close_ int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        struct stat st;

        if (kvm < 0 || fstat(kvm, &st) < 0)
                return false;

        _cleanup_close_ int vm = ioctl(kvm, KVM_CREATE_VM, 0);

        if (vm < 0 || !runs_code(kvm, vm))
                return false;
        *ret_gid = (st.st_mode & (S_IRGRP | S_IWGRP)) == (S_IRGRP | S_IWGRP) ? st.st_gid : (gid_t)-1;
        return true;
}
