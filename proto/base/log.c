/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/base/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
        const char *ident;
        enum log_level most;
        int fd;
        bool journal;
} the_log = {.most = LOG_LEVEL_INFO, .fd = STDERR_FILENO};

/* By level: the word for a person and the syslog priority for the journal (sd-daemon(3)). */
static const struct {
        const char *word;
        const char *journal;
} levels[] = {
        [LOG_LEVEL_ERROR] = {"error: ", "<3>"},
        [LOG_LEVEL_WARNING] = {"warning: ", "<4>"},
        [LOG_LEVEL_INFO] = {"", "<6>"},
        [LOG_LEVEL_DEBUG] = {"debug: ", "<7>"},
};

void log_setup(const char *ident, enum log_level most)
{
        the_log.ident = ident;
        the_log.most = most;
        the_log.journal = getenv("JOURNAL_STREAM") != NULL;
}

void log_set_fd(int fd)
{
        the_log.fd = fd;
}

/* Copies text with its control bytes escaped, as much as fits whole. */
static size_t escape(char *to, size_t room, const char *text)
{
        size_t n = 0;

        for (; *text; text++) {
                unsigned char c = (unsigned char)*text;
                bool plain = c >= 0x20 && c != 0x7f;

                if (n + (plain ? 1 : 4) > room)
                        break;
                if (plain)
                        to[n++] = (char)c;
                else
                        n += (size_t)sprintf(to + n, "\\x%02x", c);
        }
        return n;
}

static void write_line(enum log_level level, const char *text)
{
        char line[LOG_LINE_BYTES];
        int head;
        size_t n;

        if (the_log.journal)
                head = snprintf(line, sizeof(line) / 2, "%s", levels[level].journal);
        else
                head = snprintf(line, sizeof(line) / 2, "%s%s%s", the_log.ident ? the_log.ident : "",
                        the_log.ident ? ": " : "", levels[level].word);
        n = (size_t)head;
        if (n > sizeof(line) / 2 - 1)
                n = sizeof(line) / 2 - 1;
        n += escape(line + n, sizeof(line) - 1 - 4 - n, text);
        line[n++] = '\n';
        (void)!write(the_log.fd, line, n);
}

void log_write(enum log_level level, const char *format, ...)
{
        char text[LOG_LINE_BYTES];
        int saved_errno = errno;
        va_list ap;

        if (level > the_log.most)
                return;
        va_start(ap, format);
        (void)vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        write_line(level, text);
        errno = saved_errno;
}

int log_write_errno(enum log_level level, int error, const char *format, ...)
{
        char text[LOG_LINE_BYTES];
        va_list ap;
        int n;

        if (level > the_log.most)
                return error;
        va_start(ap, format);
        n = vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof(text))
                (void)snprintf(text + n, sizeof(text) - (size_t)n, ": %s",
                        strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown error");
        write_line(level, text);
        return error;
}
