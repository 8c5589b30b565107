/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/terminal.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

void terminal_find(struct terminal *t)
{
        *t = (struct terminal){.fd = -1};
        for (int fd = 0; fd < 3 && t->fd < 0; fd++)
                if (isatty(fd))
                        t->fd = fd;
}

int terminal_make_raw(struct terminal *t)
{
        struct termios raw;

        /* Without a terminal as stdin there is nothing to read raw. */
        if (t->fd != STDIN_FILENO || t->is_raw)
                return 0;
        if (tcgetattr(t->fd, &t->before) < 0)
                return -errno;
        raw = t->before;
        cfmakeraw(&raw);
        if (tcsetattr(t->fd, TCSANOW, &raw) < 0)
                return -errno;
        t->is_raw = true;
        return 0;
}

void terminal_restore(struct terminal *t)
{
        if (t->is_raw)
                (void)tcsetattr(t->fd, TCSANOW, &t->before);
        t->is_raw = false;
}

bool terminal_size(const struct terminal *t, unsigned *ret_rows, unsigned *ret_columns)
{
        struct winsize size = {0};

        *ret_rows = *ret_columns = 0;
        if (t->fd < 0 || ioctl(t->fd, TIOCGWINSZ, &size) < 0)
                return false;
        *ret_rows = size.ws_row;
        *ret_columns = size.ws_col;
        return true;
}
