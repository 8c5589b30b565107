/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/statistics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "guest/exec.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

#define TEXT_MAX_BYTES (1024u * 1024u)
#define SECTOR_BYTES   512u /* of diskstats, whatever the disk's are */

/* The line behind p's, or the end. */
static const char *next_line(const char *p)
{
        p += strcspn(p, "\n");
        return *p ? p + 1 : p;
}

/* ---- the kernel's texts */

void statistics_parse_cpu(const char *text, uint64_t tick_ns, Wb__CpuStatistics *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                uint64_t user, nice, system, idle, iowait, irq, softirq, steal;

                if (strncmp(p, "cpu", 3) != 0)
                        continue;
                if (p[3] != ' ') {
                        ret->cpus++;
                        continue;
                }
                if (sscanf(p + 3,
                            "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64,
                            &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal) != 8)
                        continue;
                ret->user_ns = (user + nice) * tick_ns;
                ret->system_ns = (system + irq + softirq) * tick_ns;
                ret->idle_ns = idle * tick_ns;
                ret->iowait_ns = iowait * tick_ns;
                ret->steal_ns = steal * tick_ns;
        }
}

void statistics_parse_memory(const char *text, Wb__MemoryStatistics *ret)
{
        const struct {
                const char *name;
                uint64_t *value;
        } wanted[] = {
                {"MemTotal:", &ret->total_bytes},
                {"MemAvailable:", &ret->available_bytes},
                {"MemFree:", &ret->free_bytes},
                {"Cached:", &ret->cached_bytes},
                {"SwapTotal:", &ret->swap_total_bytes},
                {"SwapFree:", &ret->swap_free_bytes},
        };

        for (const char *p = text; *p; p = next_line(p))
                for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
                        if (strncmp(p, wanted[i].name, strlen(wanted[i].name)) == 0)
                                *wanted[i].value = strtoull(p + strlen(wanted[i].name), NULL, 10) * 1024;
}

void statistics_parse_pressure(const char *text, Wb__Pressure *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                unsigned whole, hundredths;
                uint64_t total_us;
                char word[8];

                if (sscanf(p, "%7s avg10=%u.%2u avg60=%*s avg300=%*s total=%" SCNu64, word, &whole, &hundredths,
                            &total_us) != 4)
                        continue;
                if (strcmp(word, "some") == 0) {
                        ret->some_avg10_permille = whole * 10 + hundredths / 10;
                        ret->some_total_ns = total_us * NSEC_PER_USEC;
                } else if (strcmp(word, "full") == 0) {
                        ret->full_avg10_permille = whole * 10 + hundredths / 10;
                        ret->full_total_ns = total_us * NSEC_PER_USEC;
                }
        }
}

void statistics_parse_disk(const char *text, const char *device, Wb__DiskStatistics *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                unsigned major, minor;
                uint64_t read_sectors, written_sectors;
                char name[16];

                if (sscanf(p, "%u %u %*s %*s %*s %" SCNu64 " %*s %*s %*s %" SCNu64, &major, &minor, &read_sectors,
                            &written_sectors) != 4)
                        continue;
                (void)snprintf(name, sizeof(name), "%u:%u", major, minor);
                if (strcmp(name, device) != 0)
                        continue;
                ret->read_bytes = read_sectors * SECTOR_BYTES;
                ret->written_bytes = written_sectors * SECTOR_BYTES;
        }
}

/* ---- all together */

static char *read_text(const char *path)
{
        char *text = NULL;

        return io_read_file(path, TEXT_MAX_BYTES, &text, NULL) < 0 ? NULL : text;
}

static void gather_cpu(struct statistics *s)
{
        _cleanup_free_ char *text = read_text("/proc/stat");
        long hz = sysconf(_SC_CLK_TCK);

        wb__cpu_statistics__init(&s->cpu);
        if (text)
                statistics_parse_cpu(text, NSEC_PER_SEC / (uint64_t)(hz > 0 ? hz : 100), &s->cpu);
        s->message.cpu = &s->cpu;
}

static void gather_memory(struct statistics *s)
{
        _cleanup_free_ char *text = read_text("/proc/meminfo");

        wb__memory_statistics__init(&s->memory);
        if (text)
                statistics_parse_memory(text, &s->memory);
        s->message.memory = &s->memory;
}

static void gather_pressure(struct statistics *s)
{
        static const struct {
                const char *resource, *path;
        } sources[STATISTICS_PRESSURES] = {
                {"cpu", "/proc/pressure/cpu"}, {"memory", "/proc/pressure/memory"}, {"io", "/proc/pressure/io"}};

        for (size_t i = 0; i < STATISTICS_PRESSURES; i++) {
                _cleanup_free_ char *text = read_text(sources[i].path);
                Wb__Pressure *p = &s->pressures[s->message.n_pressure];

                if (!text)
                        continue;
                wb__pressure__init(p);
                p->resource = (char *)(uintptr_t)sources[i].resource;
                statistics_parse_pressure(text, p);
                s->pressure_pointers[s->message.n_pressure++] = p;
        }
        s->message.pressure = s->pressure_pointers;
}

static void gather_disks(struct statistics *s)
{
        _cleanup_free_ char *mounts = read_text("/proc/self/mountinfo"), *disks = read_text("/proc/diskstats");
        size_t n = mounts ? filesystems_find(mounts, s->filesystems) : 0;

        for (size_t i = 0; i < n; i++) {
                struct filesystem *f = &s->filesystems[i];
                Wb__DiskStatistics *d = &s->disks[i];
                struct statvfs st;

                wb__disk_statistics__init(d);
                d->path = (ProtobufCBinaryData){.len = strlen(f->path), .data = (uint8_t *)f->path};
                if (statvfs(f->path, &st) == 0) {
                        d->total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
                        d->available_bytes = (uint64_t)st.f_bavail * st.f_frsize;
                }
                if (disks)
                        statistics_parse_disk(disks, f->device, d);
                s->disk_pointers[i] = d;
        }
        s->message.n_disks = n;
        s->message.disks = s->disk_pointers;
}

void statistics_gather(const struct exec_table *execs, struct statistics *ret)
{
        wb__statistics__init(&ret->message);
        gather_cpu(ret);
        gather_memory(ret);
        gather_pressure(ret);
        gather_disks(ret);
        ret->message.n_execs = exec_table_statistics(execs, ret->execs, STATISTICS_EXECS_MAX);
        for (size_t i = 0; i < ret->message.n_execs; i++)
                ret->exec_pointers[i] = &ret->execs[i];
        ret->message.execs = ret->exec_pointers;
}
