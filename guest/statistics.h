/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the guest uses: for `wbctl info`. The kernel's texts are parsed by pure functions. */

#include <stddef.h>

#include "guest/exec.h"
#include "guest/filesystems.h"
#include "proto/wb.pb-c.h"

#define STATISTICS_EXECS_MAX 256
#define STATISTICS_PRESSURES 3 /* cpu, memory, io */

struct exec_table;

/* The message and all that it points at but the execs' texts; large: not for the stack. */
struct statistics {
        Wb__Statistics message;
        Wb__CpuStatistics cpu;
        Wb__MemoryStatistics memory;
        Wb__Pressure pressures[STATISTICS_PRESSURES], *pressure_pointers[STATISTICS_PRESSURES];
        struct filesystem filesystems[FILESYSTEMS_MAX];
        Wb__DiskStatistics disks[FILESYSTEMS_MAX], *disk_pointers[FILESYSTEMS_MAX];
        struct exec_statistics execs[STATISTICS_EXECS_MAX];
        Wb__ExecStatistics *exec_pointers[STATISTICS_EXECS_MAX];
};

/* What cannot be read stays 0. Lives until the loop goes on. */
void statistics_gather(const struct exec_table *execs, struct statistics *ret);

/* proc(5): /proc/stat, of which one tick is tick_ns; /proc/meminfo; /proc/diskstats, of which a line is device's
 * ("254:0"); and Documentation/accounting/psi.rst. Lines that are not understood are passed over. */
void statistics_parse_cpu(const char *text, uint64_t tick_ns, Wb__CpuStatistics *ret);
void statistics_parse_memory(const char *text, Wb__MemoryStatistics *ret);
void statistics_parse_pressure(const char *text, Wb__Pressure *ret);
void statistics_parse_disk(const char *text, const char *device, Wb__DiskStatistics *ret);
