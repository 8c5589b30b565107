/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/statistics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

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

/* The number at *p, behind spaces, and moves *p behind it. False if there is none; *p stays then. */
static bool take_number(const char **p, uint64_t *ret)
{
        const char *at = *p + strspn(*p, " ");
        char *end;

        if (*at < '0' || *at > '9')
                return false;
        *ret = strtoull(at, &end, 10);
        *p = end;
        return true;
}

static bool take_numbers(const char *p, uint64_t *ret, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (!take_number(&p, &ret[i]))
                        return false;
        return true;
}

/* ---- the kernel's texts */

enum cpu_column {
        CPU_USER,
        CPU_NICE,
        CPU_SYSTEM,
        CPU_IDLE,
        CPU_IOWAIT,
        CPU_IRQ,
        CPU_SOFTIRQ,
        CPU_STEAL,
        CPU_COLUMNS,
};

void statistics_parse_cpu(const char *text, uint64_t tick_ns, Wb__CpuStatistics *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                uint64_t ticks[CPU_COLUMNS];

                if (strncmp(p, "cpu", 3) != 0)
                        continue;
                if (p[3] != ' ') {
                        ret->cpus++;
                        continue;
                }
                if (!take_numbers(p + 3, ticks, CPU_COLUMNS))
                        continue;
                ret->user_ns = (ticks[CPU_USER] + ticks[CPU_NICE]) * tick_ns;
                ret->system_ns = (ticks[CPU_SYSTEM] + ticks[CPU_IRQ] + ticks[CPU_SOFTIRQ]) * tick_ns;
                ret->idle_ns = ticks[CPU_IDLE] * tick_ns;
                ret->iowait_ns = ticks[CPU_IOWAIT] * tick_ns;
                ret->steal_ns = ticks[CPU_STEAL] * tick_ns;
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

/* "12.34" at p: 123. */
static bool take_permille(const char *p, uint32_t *ret)
{
        uint64_t whole, hundredths;

        if (!take_number(&p, &whole) || *p != '.')
                return false;
        p++;
        if (!take_number(&p, &hundredths) || whole > 100 || hundredths > 99)
                return false;
        *ret = (uint32_t)(whole * 10 + hundredths / 10);
        return true;
}

static bool parse_pressure_line(const char *p, uint32_t *ret_permille, uint64_t *ret_total_ns)
{
        static const char average[] = " avg10=", total[] = " total=";
        const char *end = p + strcspn(p, "\n"), *a = strstr(p, average), *t = strstr(p, total);
        uint64_t total_us;

        if (!a || !t || a > end || t > end)
                return false;
        t += strlen(total);
        if (!take_permille(a + strlen(average), ret_permille) || !take_number(&t, &total_us))
                return false;
        *ret_total_ns = total_us * NSEC_PER_USEC;
        return true;
}

void statistics_parse_pressure(const char *text, Wb__Pressure *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                uint64_t total_ns;
                uint32_t permille;

                if (!parse_pressure_line(p, &permille, &total_ns))
                        continue;
                if (strncmp(p, "some ", 5) == 0) {
                        ret->some_avg10_permille = permille;
                        ret->some_total_ns = total_ns;
                } else if (strncmp(p, "full ", 5) == 0) {
                        ret->full_avg10_permille = permille;
                        ret->full_total_ns = total_ns;
                }
        }
}

/* Columns of a line behind the disk's name (Documentation/admin-guide/iostats.rst). */
enum disk_column {
        DISK_SECTORS_READ = 2,
        DISK_SECTORS_WRITTEN = 6,
        DISK_COLUMNS,
};

void statistics_parse_disk(const char *text, const char *device, Wb__DiskStatistics *ret)
{
        for (const char *p = text; *p; p = next_line(p)) {
                uint64_t major, minor, columns[DISK_COLUMNS];
                const char *at = p;
                char name[48];

                if (!take_number(&at, &major) || !take_number(&at, &minor))
                        continue;
                (void)snprintf(name, sizeof(name), "%" PRIu64 ":%" PRIu64, major, minor);
                at += strspn(at, " ");
                at += strcspn(at, " \n");
                if (strcmp(name, device) != 0 || !take_numbers(at, columns, DISK_COLUMNS))
                        continue;
                ret->read_bytes = columns[DISK_SECTORS_READ] * SECTOR_BYTES;
                ret->written_bytes = columns[DISK_SECTORS_WRITTEN] * SECTOR_BYTES;
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
                ret->exec_pointers[i] = &ret->execs[i].message;
        ret->message.execs = ret->exec_pointers;
}
