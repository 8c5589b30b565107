/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/kernel_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

#define RECORD_BYTES    8192 /* CONSOLE_EXT_LOG_MAX of linux/printk.h, later PRINTK_MESSAGE_MAX, which is less */
#define TAKEN_AT_A_TIME 4096 /* then others have their turn */

int kernel_log_open(void)
{
        _cleanup_close_ int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        if (lseek(fd, 0, SEEK_END) < 0)
                return -errno;
        return steal_fd(&fd);
}

/*
 * PRIORITY,SEQUENCE,TIME,FLAGS[,...];TEXT and a newline (Documentation/ABI/testing/dev-kmsg). A priority below 8 is of
 * facility 0, the kernel's own: what a program writes to the log gets another, whatever it asks for.
 */
bool kernel_log_is_generation(const char *record, size_t n)
{
        static const char wanted[] = "random: crng reseeded due to virtual machine fork"; /* drivers/char/random.c */
        const char *text = memchr(record, ';', n), *end;

        if (!text || record[0] < '0' || record[0] > '7' || record[1] != ',')
                return false;
        text++;
        n -= (size_t)(text - record);
        end = memchr(text, '\n', n);
        n = end ? (size_t)(end - text) : n;
        return n == sizeof(wanted) - 1 && memcmp(text, wanted, n) == 0;
}

bool kernel_log_take(int fd)
{
        char record[RECORD_BYTES];
        bool found = false;

        for (int i = 0; i < TAKEN_AT_A_TIME; i++) {
                ssize_t n = read(fd, record, sizeof(record)); /* one at a time */

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EPIPE)
                        found = true; /* overwritten before we came to it */
                else if (n <= 0)
                        break;
                else
                        found |= kernel_log_is_generation(record, (size_t)n);
        }
        return found;
}
