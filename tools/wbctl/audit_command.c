/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "tools/wbctl/printable.h"

int audit_open(const struct option_table *table, const char *dir, char *const *files, size_t files_n,
        struct audit_reader **ret)
{
        int r;

        if (dir && files_n)
                return options_usage_error(table, "either --dir or files");
        if (!dir)
                dir = AUDIT_DEFAULT_DIR;
        r = files_n ? audit_reader_open_files(files, files_n, ret) : audit_reader_open_dir(dir, ret);
        if (r == -ENOENT || r == -ENOTDIR)
                return options_usage_error(table, "%s%s",
                        files_n ? "there is no such file among those given" : "no audit log in ", files_n ? "" : dir);
        return r < 0 ? log_errno(r, "cannot read the audit log in %s", files_n ? "the files given" : dir) : 0;
}

int audit_each(struct audit_reader *reader, audit_record_handler handler, void *userdata, uint64_t *ret_bad_n)
{
        struct audit_text text;
        uint64_t bad_n = 0;
        bool go_on = true;
        int r = 0;

        while (go_on && (r = audit_reader_next(reader, &text)) == AUDIT_READER_E_LINE) {
                struct audit_line line;

                if (text.kind != AUDIT_TEXT_LINE || audit_line_parse(text.text, text.n, &line) != 0) {
                        bad_n++;
                        continue;
                }
                go_on = handler(userdata, &text, &line);
                audit_line_done(&line);
        }
        *ret_bad_n = bad_n;
        return r < 0 ? log_errno(r, "cannot read %s", text.file) : 0;
}

void audit_say_bad(uint64_t bad_n)
{
        if (bad_n)
                log_warning("%" PRIu64 " lines are no records; `wbctl audit verify` says which", bad_n);
}

/* Room is of the array that it goes to. */
static void text_of(const char *text, char *ret_text, size_t room)
{
        printable(text ? text : "-", ret_text, room);
}

void audit_format_target(const struct audit_line *line, char *ret_text, size_t room)
{
        char text[300];

        text_of(line->host, text, sizeof(text));
        if (line->host && line->port)
                (void)snprintf(ret_text, room, strchr(text, ':') ? "[%s]:%u" : "%s:%u", text, line->port);
        else
                (void)snprintf(ret_text, room, "%s", text);
}

void audit_print_head(void)
{
        printf("%-27s %-16s %-12s %-8s %-20s %-36s %-16s %s\n", "TIME", "VM", "EVENT", "DECISION", "REASON", "TARGET",
                "UP/DOWN", "DETAIL");
}

void audit_print_row(const struct audit_line *line)
{
        char vm[80], target[320], bytes[48] = "-", detail[600];
        bool allowed = line->reason == REASON_ALLOWED;

        text_of(line->vm, vm, sizeof(vm));
        audit_format_target(line, target, sizeof(target));
        if (json_object_get(line->record, "bytes_up"))
                (void)snprintf(bytes, sizeof(bytes), "%" PRIu64 "/%" PRIu64, line->bytes_up, line->bytes_down);
        text_of(line->detail ? line->detail : "", detail, sizeof(detail));
        printf("%-27s %-16s %-12s %-8s %-20s %-36s %-16s %s\n", line->ts, vm, audit_event_name(line->event),
                !line->has_decision ? "-"
                : allowed           ? "allow"
                                    : "deny",
                line->has_decision ? reason_info(line->reason)->name : "-", target, bytes, detail);
}

int audit_print_json(const struct json_t *value)
{
        _cleanup_free_ char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);

        if (!text)
                return -ENOMEM;
        for (const char *p = text; *p; p++)
                if (*p == 0x7f) /* the one control character that JSON may have as it is */
                        printf("\\u007f");
                else
                        (void)putchar(*p);
        return putchar('\n') == EOF ? -EIO : 0;
}

void audit_print_line(const struct audit_text *text, const struct audit_line *line)
{
        if (printable_is(text->text, text->n))
                puts(text->text);
        else
                (void)audit_print_json(line->record);
}
