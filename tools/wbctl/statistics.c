/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/statistics.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/wbctl/limits.h"

#define MIB(bytes) ((double)(bytes) / (1024 * 1024))

/* A path is the guest's bytes; what is not printable must not reach the terminal, nor break JSON. */
static const char *path_text(const ProtobufCBinaryData *path, char *to, size_t room)
{
        size_t n = 0;

        for (size_t i = 0; i < path->len && n + 1 < room; i++)
                to[n++] = path->data[i] >= 0x20 && path->data[i] < 0x7f ? (char)path->data[i] : '?';
        to[n] = '\0';
        return to;
}

void statistics_print(const Wb__Statistics *s)
{
        char path[256];

        printf("\nuse:\n");
        if (s->cpu)
                printf("%-19s %u, user %.1f s, system %.1f s, idle %.1f s, stolen %.1f s\n", "cpus", s->cpu->cpus,
                        (double)s->cpu->user_ns / 1e9, (double)s->cpu->system_ns / 1e9, (double)s->cpu->idle_ns / 1e9,
                        (double)s->cpu->steal_ns / 1e9);
        if (s->memory)
                printf("%-19s %.0f MiB, %.0f available\n", "memory", MIB(s->memory->total_bytes),
                        MIB(s->memory->available_bytes));
        for (size_t i = 0; i < s->n_pressure; i++)
                printf("pressure on %-7s some %.1f %%, all %.1f %% of the last 10 s\n", s->pressure[i]->resource,
                        s->pressure[i]->some_avg10_permille / 10.0, s->pressure[i]->full_avg10_permille / 10.0);
        for (size_t i = 0; i < s->n_disks; i++)
                printf("disk at %-11s %.0f MiB, %.0f available, %.0f read, %.0f written\n",
                        path_text(&s->disks[i]->path, path, sizeof(path)), MIB(s->disks[i]->total_bytes),
                        MIB(s->disks[i]->available_bytes), MIB(s->disks[i]->read_bytes),
                        MIB(s->disks[i]->written_bytes));
        for (size_t i = 0; i < s->n_execs; i++) {
                const Wb__ExecStatistics *x = s->execs[i];
                char limits[LIMITS_TEXT_BYTES] = "not known";

                if (x->limits)
                        limits_exec_text(x->limits, limits);
                if (x->known)
                        printf("%-19s %s, user %.2f s, system %.2f s, %.1f MiB (peak %.1f), %" PRIu64
                               " processes; limits: %s\n",
                                x->id, x->state, (double)x->user_ns / 1e9, (double)x->system_ns / 1e9,
                                MIB(x->memory_bytes), MIB(x->peak_memory_bytes), x->pids, limits);
                else
                        printf("%-19s %s, not counted: no cgroup\n", x->id, x->state);
        }
}

static json_t *exec_json(const Wb__ExecStatistics *x)
{
        if (!x->known)
                return json_pack("{s:s, s:s, s:b}", "id", x->id, "state", x->state, "known", 0);
        return json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:o}", "id", x->id, "state", x->state, "known", 1,
                "user_ns", (json_int_t)x->user_ns, "system_ns", (json_int_t)x->system_ns, "memory_bytes",
                (json_int_t)x->memory_bytes, "peak_memory_bytes", (json_int_t)x->peak_memory_bytes, "pids",
                (json_int_t)x->pids, "limits", x->limits ? limits_exec_json(x->limits) : json_null());
}

static json_t *pressure_json(const Wb__Pressure *p)
{
        return json_pack("{s:f, s:f, s:I, s:I}", "some_avg10", p->some_avg10_permille / 10.0, "full_avg10",
                p->full_avg10_permille / 10.0, "some_total_ns", (json_int_t)p->some_total_ns, "full_total_ns",
                (json_int_t)p->full_total_ns);
}

static json_t *disk_json(const Wb__DiskStatistics *d)
{
        char path[256];

        return json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", path_text(&d->path, path, sizeof(path)), "total_bytes",
                (json_int_t)d->total_bytes, "available_bytes", (json_int_t)d->available_bytes, "read_bytes",
                (json_int_t)d->read_bytes, "written_bytes", (json_int_t)d->written_bytes);
}

json_t *statistics_json(const Wb__Statistics *s)
{
        json_t *root = json_object(), *pressure = json_object(), *disks = json_array(), *execs = json_array();

        if (s->cpu)
                (void)json_object_set_new(root, "cpu",
                        json_pack("{s:i, s:I, s:I, s:I, s:I, s:I}", "cpus", (int)s->cpu->cpus, "user_ns",
                                (json_int_t)s->cpu->user_ns, "system_ns", (json_int_t)s->cpu->system_ns, "idle_ns",
                                (json_int_t)s->cpu->idle_ns, "iowait_ns", (json_int_t)s->cpu->iowait_ns, "steal_ns",
                                (json_int_t)s->cpu->steal_ns));
        if (s->memory)
                (void)json_object_set_new(root, "memory",
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "total_bytes", (json_int_t)s->memory->total_bytes,
                                "available_bytes", (json_int_t)s->memory->available_bytes, "free_bytes",
                                (json_int_t)s->memory->free_bytes, "cached_bytes", (json_int_t)s->memory->cached_bytes,
                                "swap_total_bytes", (json_int_t)s->memory->swap_total_bytes, "swap_free_bytes",
                                (json_int_t)s->memory->swap_free_bytes));
        for (size_t i = 0; i < s->n_pressure; i++)
                (void)json_object_set_new(pressure, s->pressure[i]->resource, pressure_json(s->pressure[i]));
        for (size_t i = 0; i < s->n_disks; i++)
                (void)json_array_append_new(disks, disk_json(s->disks[i]));
        for (size_t i = 0; i < s->n_execs; i++)
                (void)json_array_append_new(execs, exec_json(s->execs[i]));
        (void)json_object_set_new(root, "pressure", pressure);
        (void)json_object_set_new(root, "disks", disks);
        (void)json_object_set_new(root, "execs", execs);
        return root;
}
