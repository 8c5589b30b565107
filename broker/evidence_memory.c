/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "broker/evidence_source.h"
#include "proto/base/cleanup.h"

/* Mappings with a path such as "anon_inode:kvm-vcpu:0" lie on the one inode that all of these have: whose they are does
 * not show, and a device's memory is not the VM's. */
static bool is_memory(const char *path)
{
        return strncmp(path, "anon_inode:", strlen("anon_inode:")) != 0 &&
               (strncmp(path, "/dev/", strlen("/dev/")) != 0 || strncmp(path, "/dev/shm/", strlen("/dev/shm/")) == 0 ||
                       strncmp(path, "/dev/zero", strlen("/dev/zero")) == 0 ||
                       strncmp(path, "/dev/hugepages", strlen("/dev/hugepages")) == 0);
}

static int add_mapping(struct evidence_memory *m, const struct evidence_mapping *mapping)
{
        for (uint32_t i = 0; i < m->shared_n; i++)
                if (m->shared[i].device == mapping->device && m->shared[i].inode == mapping->inode) {
                        m->shared[i].writable |= mapping->writable;
                        return 0;
                }
        if (m->shared_n == EVIDENCE_SHARED_MAX)
                return -E2BIG;
        m->shared[m->shared_n++] = *mapping;
        return 0;
}

/* START-END rwxs OFFSET MAJOR:MINOR INODE PATH (proc(5)); a guest's memory is a memfd or a file, mapped shared. */
static int take_line(const char *line, struct evidence_memory *m)
{
        const char *access = strchr(line, ' '), *at;
        uint64_t offset, major, minor, inode;

        if (!access || strlen(++access) < 5 || access[4] != ' ')
                return -EBADMSG;
        at = access + 4;
        if (!evidence_take_number(&at, 16, &offset) || !evidence_take_number(&at, 16, &major) || *at++ != ':' ||
                !evidence_take_number(&at, 16, &minor) || !evidence_take_number(&at, 10, &inode))
                return -EBADMSG;
        if (access[3] != 's' || inode == 0 || !is_memory(at + strspn(at, " ")))
                return 0;
        return add_mapping(m, &(struct evidence_mapping){.device = makedev((unsigned)major, (unsigned)minor),
                                      .inode = inode,
                                      .writable = access[1] == 'w'});
}

void evidence_read_memory(int proc_fd, struct evidence_memory *ret)
{
        struct evidence_memory m = {0};
        _cleanup_free_ char *text = NULL;
        int r = evidence_read_file(proc_fd, "maps", &text);

        for (char *line = text, *end; r == 0 && line && *line; line = end) {
                end = strchr(line, '\n');
                if (end)
                        *end++ = '\0';
                r = take_line(line, &m);
        }
        if (r < 0)
                m = (struct evidence_memory){.error = -r};
        *ret = m;
}
