/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/entropy.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/wire/limits.h"

/* struct rand_pool_info with room for the seed. */
struct pool_info {
        int entropy_bits;
        int bytes_n;
        uint8_t bytes[WB_SEED_BYTES];
};
static_assert(offsetof(struct pool_info, bytes) == offsetof(struct rand_pool_info, buf), "as the kernel lays it out");

static int credit(int fd, const uint8_t *seed, size_t n)
{
        struct pool_info info = {.entropy_bits = (int)n * 8, .bytes_n = (int)n};
        int r;

        memcpy(info.bytes, seed, n);
        r = ioctl(fd, RNDADDENTROPY, &info) < 0 ? -errno : 0;
        explicit_bzero(&info, sizeof(info));
        return r;
}

/* Does getrandom(2) answer without waiting? */
static bool generator_is_ready(void)
{
        uint8_t byte;

        return getrandom(&byte, sizeof(byte), GRND_NONBLOCK) == (ssize_t)sizeof(byte);
}

/* 0: the next output depends on the seed. */
static int take_effect(int fd, struct report *report)
{
        int r = ioctl(fd, RNDRESEEDCRNG) < 0 ? -errno : 0;

        /* ENODATA: the generator was not ready, at a cold boot; then adding has been what makes it so. */
        if (r < 0 && r != -ENODATA)
                return report_errno(report, r, "RNDRESEEDCRNG");
        report_fact(report, "reseeded", "%s", r == 0 ? "now" : "by becoming ready");
        if (!generator_is_ready()) {
                report_fact(report, "ready", "no");
                report_detail(report, "the kernel's generator is not ready, even with the seed");
                return -EAGAIN;
        }
        report_fact(report, "ready", "yes");
        return 0;
}

int entropy_add(const uint8_t *seed, size_t n, bool own_kernel, struct report *report)
{
        _cleanup_close_ int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
        int r;

        if (n != WB_SEED_BYTES) {
                report_detail(report, "the seed has %zu bytes, not %u", n, WB_SEED_BYTES);
                return -EINVAL;
        }
        if (fd < 0)
                return report_errno(report, -errno, "/dev/urandom");
        report_fact(report, "seed_bytes", "%zu", n);
        if (!own_kernel) {
                r = io_write_full(fd, seed, n);
                if (r < 0)
                        return report_errno(report, r, "writing to /dev/urandom");
                report_fact(report, "method", "mixed");
                report_fact(report, "ready", "%s", generator_is_ready() ? "yes" : "no");
                report_detail(report, "mixed into the kernel's pool, which is the host's own");
                return 0;
        }
        r = credit(fd, seed, n);
        if (r < 0)
                return report_errno(report, r, "RNDADDENTROPY");
        report_fact(report, "method", "credited");
        report_fact(report, "credited_bits", "%zu", n * 8);
        r = take_effect(fd, report);
        if (r == 0)
                report_detail(report, "%zu bytes of the host's randomness are in effect", n);
        return r;
}
