/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define TTY_GROUP 5 /* by Debian, Fedora, Alpine, Arch and devpts' usual gid=5 alike */

static unsigned short clamp(unsigned n, unsigned by_default)
{
        if (n == 0)
                n = by_default;
        return n > UINT16_MAX ? UINT16_MAX : (unsigned short)n;
}

int pty_open(unsigned rows, unsigned columns, uid_t uid, int *ret_master, int *ret_slave)
{
        _cleanup_close_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        _cleanup_close_ int slave = -1;
        int unlock = 0, r;

        if (master < 0 && errno == ENOENT)
                master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
                return -errno;
        /* Through the master, so that no path of the guest's is trusted. */
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0)
                return -errno;
        if (fchown(slave, uid, TTY_GROUP) < 0 || fchmod(slave, 0620) < 0)
                return -errno;
        r = pty_resize(master, rows, columns);
        if (r < 0)
                return r;
        *ret_master = steal_fd(&master);
        *ret_slave = steal_fd(&slave);
        return 0;
}

int pty_resize(int master, unsigned rows, unsigned columns)
{
        struct winsize size = {.ws_row = clamp(rows, PTY_ROWS), .ws_col = clamp(columns, PTY_COLUMNS)};

        return ioctl(master, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

int pty_eof_byte(int master)
{
        struct termios t;

        if (tcgetattr(master, &t) < 0 || !(t.c_lflag & ICANON) || t.c_cc[VEOF] == _POSIX_VDISABLE)
                return -1;
        return t.c_cc[VEOF];
}
