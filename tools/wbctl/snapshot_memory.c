/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define PAGE_BYTES   4096u
#define BUFFER_BYTES (256u * 1024u)
#define PART_BYTES   (UINT64_C(64) << 20)

int snapshot_memory_new(uint64_t bytes, int *ret_fd)
{
        _cleanup_close_ int fd = memfd_create("wb-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* Data at or behind offset: where it begins and ends; both are bytes when there is none. */
static int find_data(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_end)
{
        off_t start = lseek(fd, (off_t)offset, SEEK_DATA);
        off_t end = start < 0 ? -1 : lseek(fd, start, SEEK_HOLE);

        if (start < 0 && errno == ENXIO) {
                *ret_start = *ret_end = bytes;
                return 0;
        }
        if (start < 0 || end < 0)
                return -errno;
        *ret_start = (uint64_t)start < bytes ? (uint64_t)start : bytes;
        *ret_end = (uint64_t)end < bytes ? (uint64_t)end : bytes;
        return 0;
}

static int read_at(int fd, void *to, size_t n, uint64_t offset)
{
        for (size_t done = 0; done < n;) {
                ssize_t r = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

                if (r < 0 && errno == EINTR)
                        continue;
                if (r <= 0)
                        return r == 0 ? -EPIPE : -errno;
                done += (size_t)r;
        }
        return 0;
}

static int write_at(int fd, const void *from, size_t n, uint64_t offset)
{
        for (size_t done = 0; done < n;) {
                ssize_t r = pwrite(fd, (const char *)from + done, n - done, (off_t)(offset + done));

                if (r < 0 && errno == EINTR)
                        continue;
                if (r < 0)
                        return -errno;
                done += (size_t)r;
        }
        return 0;
}

static bool is_zero(const char *page)
{
        return page[0] == 0 && memcmp(page, page + 1, PAGE_BYTES - 1) == 0;
}

/* n bytes of the buffer belong at offset; pages of zeros are left out. */
static int write_pages(int to, const char *buffer, size_t n, uint64_t offset)
{
        for (size_t at = 0; at < n;) {
                size_t end = at;
                int r;

                while (end < n && !is_zero(buffer + end))
                        end += PAGE_BYTES;
                r = end > at ? write_at(to, buffer + at, end - at, offset + at) : 0;
                if (r < 0)
                        return r;
                at = end + PAGE_BYTES;
        }
        return 0;
}

int snapshot_memory_write(int from, uint64_t bytes, int to)
{
        _cleanup_free_ char *buffer = malloc(BUFFER_BYTES);
        uint64_t start = 0;
        uint64_t end = 0;
        int r;

        if (!buffer)
                return -ENOMEM;
        while ((r = find_data(from, end, bytes, &start, &end)) == 0 && start < bytes) {
                for (uint64_t at = start; at < end; at += BUFFER_BYTES) {
                        size_t n = end - at < BUFFER_BYTES ? (size_t)(end - at) : BUFFER_BYTES;

                        if ((r = read_at(from, buffer, n, at)) < 0 || (r = write_pages(to, buffer, n, at)) < 0)
                                return r;
                }
        }
        if (r < 0)
                return r;
        return ftruncate(to, (off_t)bytes) < 0 ? -errno : 0;
}

/* Straight into the memory, without a buffer between. */
static int read_part(int from, uint64_t start, size_t n, int to)
{
        void *mapped = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, to, (off_t)start);
        int r;

        if (mapped == MAP_FAILED)
                return -errno;
        r = read_at(from, mapped, n, start);
        (void)munmap(mapped, n);
        return r;
}

int snapshot_memory_read_some(int from, uint64_t bytes, int to, uint64_t *offset)
{
        uint64_t limit = bytes - *offset < PART_BYTES ? bytes : *offset + PART_BYTES;
        uint64_t at = *offset;

        while (at < limit) {
                uint64_t start;
                uint64_t end;
                int r = find_data(from, at, bytes, &start, &end);

                if (r < 0)
                        return r;
                /* Whole pages: where other block sizes rule, a hole may begin within one. */
                start -= start % PAGE_BYTES;
                end += (PAGE_BYTES - end % PAGE_BYTES) % PAGE_BYTES;
                end = end < start + PART_BYTES ? end : start + PART_BYTES;
                r = end > start ? read_part(from, start, (size_t)(end - start), to) : 0;
                if (r < 0)
                        return r;
                at = end;
        }
        *offset = at < bytes ? at : bytes;
        return 0;
}
