/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/wbctl/printable.h"

#define MIB(bytes) ((double)(bytes) / (1024 * 1024))

/* ---- an exec's */

void limits_exec_text(const Wb__ExecLimits *limits, char ret_text[LIMITS_TEXT_BYTES])
{
        size_t n = 0;

        (void)snprintf(ret_text, LIMITS_TEXT_BYTES, "none");
        if (limits->memory_bytes)
                n += (size_t)sprintf(ret_text + n, "memory %.1f MiB, ", MIB(limits->memory_bytes));
        if (limits->pids)
                n += (size_t)sprintf(ret_text + n, "pids %" PRIu64 ", ", limits->pids);
        if (limits->cpu_percent)
                n += (size_t)sprintf(ret_text + n, "cpu %u %%, ", limits->cpu_percent);
        if (limits->io_bps)
                n += (size_t)sprintf(ret_text + n, "io %.1f MiB/s, ", MIB(limits->io_bps));
        if (n)
                ret_text[n - 2] = '\0'; /* the last comma */
}

static json_t *number_or_null(uint64_t value)
{
        return value ? json_integer((json_int_t)value) : json_null();
}

json_t *limits_exec_json(const Wb__ExecLimits *limits)
{
        return json_pack("{s:o, s:o, s:o, s:o}", "memory_bytes", number_or_null(limits->memory_bytes), "pids",
                number_or_null(limits->pids), "cpu_percent", number_or_null(limits->cpu_percent), "io_bps",
                number_or_null(limits->io_bps));
}

/* ---- memory's */

/* The guest's bytes, terminated. */
static void path_text(const ProtobufCBinaryData *path, char *to, size_t room)
{
        size_t n = path->len < room - 1 ? path->len : room - 1;

        if (n)
                memcpy(to, path->data, n);
        to[n] = '\0';
}

static void print_filesystem(const Wb__MemoryFilesystem *f)
{
        char raw[256], path[256];

        path_text(&f->path, raw, sizeof(raw));
        printable(raw, path, sizeof(path));
        if (f->size_bytes)
                printf("tmpfs at %-10s %.1f MiB, %.1f used", path, MIB(f->size_bytes), MIB(f->used_bytes));
        else
                printf("tmpfs at %-10s no limit", path);
        if (f->percent)
                printf("; follows memory, %u %%", f->percent);
        if (f->fault[0])
                printf("; %s", f->fault);
        printf("\n");
}

void limits_memory_print(const Wb__MemoryLimits *limits)
{
        printf("%-19s %.1f MiB\n", "memory", MIB(limits->total_bytes));
        if (limits->ceiling_bytes)
                printf("%-19s %.1f MiB together; %s\n", "commands may use", MIB(limits->ceiling_bytes),
                        strcmp(limits->ceiling, "follows") == 0 ? "follows memory" : limits->ceiling);
        else
                printf("%-19s no ceiling%s\n", "commands may use",
                        strcmp(limits->ceiling, "unavailable") == 0 ? ": no memory controller" : "");
        for (size_t i = 0; i < limits->n_filesystems; i++)
                print_filesystem(limits->filesystems[i]);
}

static json_t *filesystem_json(const Wb__MemoryFilesystem *f)
{
        char path[256];
        json_t *text;

        path_text(&f->path, path, sizeof(path));
        text = json_string(path);
        if (!text) { /* no UTF-8 */
                printable(path, path, sizeof(path));
                for (char *p = path; *p; p++)
                        *p = (unsigned char)*p < 0x80 ? *p : '?';
                text = json_string(path);
        }
        return json_pack("{s:o, s:o, s:I, s:o, s:o}", "path", text, "size_bytes", number_or_null(f->size_bytes),
                "used_bytes", (json_int_t)f->used_bytes, "percent", number_or_null(f->percent), "fault",
                f->fault[0] ? json_string(f->fault) : json_null());
}

json_t *limits_memory_json(const Wb__MemoryLimits *limits)
{
        json_t *filesystems = json_array();

        for (size_t i = 0; i < limits->n_filesystems; i++)
                (void)json_array_append_new(filesystems, filesystem_json(limits->filesystems[i]));
        return json_pack("{s:I, s:I, s:s, s:o, s:o}", "total_bytes", (json_int_t)limits->total_bytes, "reserve_bytes",
                (json_int_t)limits->reserve_bytes, "ceiling", limits->ceiling, "ceiling_bytes",
                number_or_null(limits->ceiling_bytes), "tmpfs", filesystems);
}
