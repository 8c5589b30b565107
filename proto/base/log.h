/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Log to stderr, one line an event: "wbbroker: <4>text" under systemd (JOURNAL_STREAM set), "wbbroker: warning: text"
 * elsewhere. Control bytes are written as \xNN, so that no peer can forge a line; a line is cut at LOG_LINE_BYTES.
 * Never allocates, never blocks on a full pipe for longer than the one write. Secrets never come here.
 */

#include <errno.h>
#include <stdarg.h>

#define LOG_LINE_BYTES 1024

enum log_level {
        LOG_LEVEL_ERROR,
        LOG_LEVEL_WARNING,
        LOG_LEVEL_INFO,
        LOG_LEVEL_DEBUG,
};

/* ident must outlive the program's use of the log. Before the call: no ident, level info. Not thread-safe; call early.
 */
void log_setup(const char *ident, enum log_level most);

/* Writes elsewhere than to descriptor 2 (PID 1 writes to /dev/kmsg or the console). */
void log_set_fd(int fd);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with ": strerror" behind it. error is a negative errno; it is the return value, for `return log_errno(...)`.
 */
int log_write_errno(enum log_level level, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#define log_errno(error, ...) log_write_errno(LOG_LEVEL_ERROR, (error), __VA_ARGS__)
#define log_oom()             log_write_errno(LOG_LEVEL_ERROR, -ENOMEM, "no memory")
