/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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
        struct evidence_mapping mapping;
        unsigned major, minor;
        char access[5];
        int path = 0;

        if (sscanf(line, "%*x-%*x %4s %*x %x:%x %" SCNu64 " %n", access, &major, &minor, &mapping.inode, &path) != 4)
                return -EBADMSG;
        if (access[3] != 's' || mapping.inode == 0 || !is_memory(line + path))
                return 0;
        mapping.device = makedev(major, minor);
        mapping.writable = access[1] == 'w';
        return add_mapping(m, &mapping);
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
        *ret = r < 0 ? (struct evidence_memory){.error = -r} : m;
}
