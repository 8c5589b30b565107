/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void mapping_done(struct mapping *m)
{
        for (size_t i = 0; i < m->maps_n; i++)
                (void)munmap(m->maps[i].at, m->maps[i].n);
        *m = (struct mapping){0};
}

/* What an offset into the file must be a multiple of: of huge pages st_blksize tells the size. */
static int alignment_of(int fd, uint64_t *ret_alignment, uint64_t *ret_file_bytes)
{
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), block;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < 0)
                return -EINVAL;
        block = (uint64_t)st.st_blksize;
        *ret_alignment = block > page && (block & (block - 1)) == 0 ? block : page;
        *ret_file_bytes = (uint64_t)st.st_size;
        return 0;
}

static int map_region(struct mapping *m, const struct message_mapping *r, int fd)
{
        uint64_t alignment = 0, file_bytes = 0, start, n;
        void *at;
        int error = alignment_of(fd, &alignment, &file_bytes);

        if (error < 0)
                return error;
        if (r->size_bytes == 0 || r->offset > file_bytes || r->size_bytes > file_bytes - r->offset)
                return -EINVAL;
        start = r->offset & ~(alignment - 1);
        n = (r->offset - start + r->size_bytes + alignment - 1) & ~(alignment - 1);
        at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)start);
        if (at == MAP_FAILED)
                return -errno;
        m->maps[m->maps_n].at = at;
        m->maps[m->maps_n++].n = n;
        return memory_add(&m->memory, &(struct memory_region){
                                              .guest_addr = r->guest_addr,
                                              .user_addr = r->user_addr,
                                              .size_bytes = r->size_bytes,
                                              .at = (uint8_t *)at + (r->offset - start),
                                      });
}

int mapping_replace(struct mapping *m, const struct message_mapping *regions, const int *fds, size_t regions_n)
{
        mapping_done(m);
        if (regions_n > MEMORY_REGIONS_MAX)
                return -EINVAL;
        for (size_t i = 0; i < regions_n; i++) {
                int r = map_region(m, &regions[i], fds[i]);

                if (r < 0) {
                        mapping_done(m);
                        return r;
                }
        }
        return 0;
}
