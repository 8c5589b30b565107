/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/vmclock.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define MAGIC               0x4b4c4356u /* VMCLOCK_MAGIC */
#define VERSION             1u
#define FLAG_HAS_GENERATION (UINT64_C(1) << 8) /* VMCLOCK_FLAG_VM_GEN_COUNTER_PRESENT */
#define TRIES               1000               /* a writer holds the page for some instructions */

/* The ABI's fields that are looked at, all little-endian. */
struct page {
        uint32_t magic;
        uint32_t size;
        uint16_t version;
        uint8_t counter_id;
        uint8_t time_type;
        uint32_t sequence; /* odd while the rest is being written */
        uint64_t disruption_marker;
        uint64_t flags;
        uint8_t clock[72]; /* what the time is: ptp_vmclock's concern */
        uint64_t generation_counter;
};
static_assert(offsetof(struct page, disruption_marker) == 16, "as the ABI lays it out");
static_assert(offsetof(struct page, generation_counter) == 104, "as the ABI lays it out");

#define LEAST_BYTES offsetof(struct page, generation_counter)

struct vmclock {
        const volatile void *page;
        size_t mapped_bytes;
        uint64_t last; /* known good */
};

int vmclock_parse(const volatile void *bytes, size_t n, uint64_t *ret_marker)
{
        const volatile struct page *page = bytes;
        uint32_t before;
        uint64_t marker;

        if (n < LEAST_BYTES || le32toh(page->magic) != MAGIC || le16toh(page->version) != VERSION)
                return -EPROTO;
        before = le32toh(page->sequence);
        atomic_thread_fence(memory_order_acquire);
        marker = le64toh(page->disruption_marker);
        if (le64toh(page->flags) & FLAG_HAS_GENERATION && n >= sizeof(*page) && le32toh(page->size) >= sizeof(*page))
                marker = le64toh(page->generation_counter);
        atomic_thread_fence(memory_order_acquire);
        if (before & 1 || before != le32toh(page->sequence))
                return -EAGAIN;
        *ret_marker = marker;
        return 0;
}

/* A hypervisor that never gets done with writing is no reason to wait for it, or to call its page changed. */
static int read_marker(struct vmclock *v)
{
        int r = -EAGAIN;

        for (int i = 0; r == -EAGAIN && i < TRIES; i++)
                r = vmclock_parse(v->page, v->mapped_bytes, &v->last);
        return r;
}

static int map(struct vmclock *v, const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;
        void *page;

        if (fd < 0)
                return -errno;
        v->mapped_bytes = (size_t)sysconf(_SC_PAGESIZE);
        if (fstat(fd, &st) < 0 || (S_ISREG(st.st_mode) && (uint64_t)st.st_size < v->mapped_bytes))
                return -EPROTO; /* looking at it would be the end of us */
        page = mmap(NULL, v->mapped_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                return -errno;
        v->page = page;
        return 0;
}

int vmclock_open(const char *path, struct vmclock **ret)
{
        struct vmclock *v = calloc(1, sizeof(*v));
        int r = v ? map(v, path) : -ENOMEM;

        if (r == 0)
                r = read_marker(v);
        if (r < 0) {
                vmclock_close(v);
                return r;
        }
        *ret = v;
        return 0;
}

void vmclock_close(struct vmclock *v)
{
        if (!v)
                return;
        if (v->page)
                (void)munmap((void *)(uintptr_t)v->page, v->mapped_bytes);
        free(v);
}

uint64_t vmclock_marker(struct vmclock *v)
{
        (void)read_marker(v);
        return v->last;
}
