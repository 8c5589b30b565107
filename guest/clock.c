/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/ptp_clock.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

#define PTP_CLASS    "/sys/class/ptp"
#define PTP_KVM_NAME "KVM virtual PTP\n" /* drivers/ptp/ptp_kvm_common.c */
#define PTP_SAMPLES  8                   /* PTP_MAX_SAMPLES is 25 */

/* Host times from 2020 to 2200: a nonsense sample must not set the clock, nor overflow the sums below. */
#define HOST_LEAST_NS (UINT64_C(1577836800) * NSEC_PER_SEC)
#define HOST_MOST_NS  (UINT64_C(7258118400) * NSEC_PER_SEC)

static bool is_better(const struct clock_exchanges *e, uint64_t bound_ns)
{
        return e->done == 0 || bound_ns < e->best.bound_ns;
}

int clock_exchange_add(
        struct clock_exchanges *e, uint64_t sent_ns, uint64_t received_ns, uint64_t guest_ns, uint64_t host_ns)
{
        uint64_t round_trip_ns, half_ns;

        if (received_ns < sent_ns || host_ns < HOST_LEAST_NS || host_ns > HOST_MOST_NS || guest_ns > HOST_MOST_NS)
                return -ERANGE;
        round_trip_ns = received_ns - sent_ns;
        if (round_trip_ns > 60 * NSEC_PER_SEC)
                return -ERANGE;
        half_ns = round_trip_ns / 2;
        if (is_better(e, round_trip_ns - half_ns))
                e->best = (struct clock_offset){
                        .offset_ns = (int64_t)(host_ns + half_ns) - (int64_t)guest_ns,
                        .bound_ns = round_trip_ns - half_ns,
                };
        e->done++;
        return 0;
}

/* ---- between activations */

static const char *const action_names[] = {
        [CLOCK_LEAVE] = "left alone",
        [CLOCK_SLEW] = "slewed",
        [CLOCK_STEP] = "stepped",
};

const char *clock_action_name(enum clock_action action)
{
        return action_names[action];
}

static uint64_t magnitude(int64_t value)
{
        return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

static enum clock_action judge(const struct clock_offset *offset)
{
        uint64_t distance_ns = magnitude(offset->offset_ns);

        if (distance_ns <= offset->bound_ns)
                return CLOCK_LEAVE;
        return distance_ns <= CLOCK_SLEW_MOST_NS ? CLOCK_SLEW : CLOCK_STEP;
}

#define DRIFT_LEAST_NS NSEC_PER_SEC                         /* less says nothing of a rate */
#define DRIFT_MOST_NS  ((uint64_t)INT64_MAX / NSEC_PER_SEC) /* nine seconds: more is no drift, and would overflow */

struct clock_finding clock_find(
        const struct clock_mark *mark, const struct clock_offset *offset, int64_t left_ns, uint64_t now_ns)
{
        struct clock_finding f = {.offset = *offset, .action = judge(offset)};
        uint64_t elapsed_ns = now_ns - mark->at_ns;
        int64_t gained_ns;

        if (!mark->set || elapsed_ns < DRIFT_LEAST_NS || elapsed_ns > INT64_MAX ||
                magnitude(offset->offset_ns) > DRIFT_MOST_NS / 4 || offset->bound_ns > DRIFT_MOST_NS / 4 ||
                mark->bound_ns > DRIFT_MOST_NS / 4 || magnitude(left_ns) > DRIFT_MOST_NS / 4)
                return f;
        gained_ns = mark->residual_ns + left_ns - offset->offset_ns;
        f.drift_known = true;
        f.drift_ppb = gained_ns * (int64_t)NSEC_PER_SEC / (int64_t)elapsed_ns;
        f.drift_bound_ppb = (offset->bound_ns + mark->bound_ns) * NSEC_PER_SEC / elapsed_ns;
        return f;
}

struct clock_mark clock_mark_after(enum clock_action done, const struct clock_offset *offset, uint64_t now_ns)
{
        bool is_small = magnitude(offset->offset_ns) <= DRIFT_MOST_NS / 4;

        return (struct clock_mark){
                .set = done != CLOCK_LEAVE || is_small,
                .at_ns = now_ns,
                .residual_ns = done == CLOCK_LEAVE ? offset->offset_ns : 0,
                .bound_ns = offset->bound_ns,
        };
}

/* ---- the machine's clocks */

static int64_t ptp_ns(const struct ptp_clock_time *t)
{
        return t->sec * (int64_t)NSEC_PER_SEC + (int64_t)t->nsec;
}

/* Both clocks at one reading of the counter that they share; exact but for the resolution of that counter. */
static int read_precise(int fd, struct clock_offset *ret)
{
        struct ptp_sys_offset_precise p = {0};
        uint64_t before_ns = clock_monotonic_ns();

        if (ioctl(fd, PTP_SYS_OFFSET_PRECISE, &p) < 0)
                return -errno;
        ret->offset_ns = ptp_ns(&p.device) - ptp_ns(&p.sys_realtime);
        ret->bound_ns = clock_monotonic_ns() - before_ns;
        return 0;
}

static int read_extended(int fd, struct clock_offset *ret)
{
        struct ptp_sys_offset_extended x = {.n_samples = PTP_SAMPLES};
        struct clock_exchanges e = {0};

        if (ioctl(fd, PTP_SYS_OFFSET_EXTENDED, &x) < 0)
                return -errno;
        for (unsigned i = 0; i < x.n_samples && i < PTP_SAMPLES; i++) {
                int64_t before_ns = ptp_ns(&x.ts[i][0]), host_ns = ptp_ns(&x.ts[i][1]), after_ns = ptp_ns(&x.ts[i][2]);

                if (before_ns < 0 || after_ns < 0 || host_ns < 0)
                        return -ERANGE;
                (void)clock_exchange_add(
                        &e, (uint64_t)before_ns, (uint64_t)after_ns, (uint64_t)after_ns, (uint64_t)host_ns);
        }
        if (!e.done)
                return -ERANGE;
        *ret = e.best;
        return 0;
}

static bool is_kvm_clock(const char *name)
{
        char path[128];
        _cleanup_free_ char *text = NULL;

        (void)snprintf(path, sizeof(path), PTP_CLASS "/%.32s/clock_name", name);
        return io_read_file(path, 256, &text, NULL) == 0 && strcmp(text, PTP_KVM_NAME) == 0;
}

static int read_device(const char *name, struct clock_offset *ret)
{
        char path[64];
        _cleanup_close_ int fd = -1;
        int r;

        (void)snprintf(path, sizeof(path), "/dev/%.32s", name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        r = read_precise(fd, ret);
        return r < 0 ? read_extended(fd, ret) : 0;
}

static void close_dirp(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

bool clock_has_ptp(void)
{
        _cleanup_(close_dirp) DIR *dir = opendir(PTP_CLASS);
        struct dirent *entry;

        while (dir && (entry = readdir(dir)))
                if (strncmp(entry->d_name, "ptp", 3) == 0 && is_kvm_clock(entry->d_name))
                        return true;
        return false;
}

int clock_read_ptp(struct clock_offset *ret, char ret_name[CLOCK_PTP_NAME_BYTES])
{
        _cleanup_(close_dirp) DIR *dir = opendir(PTP_CLASS);
        struct dirent *entry;

        while (dir && (entry = readdir(dir))) {
                int r;

                if (strncmp(entry->d_name, "ptp", 3) != 0 || !is_kvm_clock(entry->d_name))
                        continue;
                r = read_device(entry->d_name, ret);
                if (r < 0)
                        return r;
                (void)snprintf(ret_name, CLOCK_PTP_NAME_BYTES, "%.31s", entry->d_name);
                return 0;
        }
        return -ENODEV;
}

int clock_step(int64_t offset_ns)
{
        struct timespec now;
        int64_t target_ns;

        if (clock_gettime(CLOCK_REALTIME, &now) < 0)
                return -errno;
        target_ns = (int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec + offset_ns;
        if (target_ns < 0)
                return -ERANGE;
        now.tv_sec = (time_t)(target_ns / (int64_t)NSEC_PER_SEC);
        now.tv_nsec = (long)(target_ns % (int64_t)NSEC_PER_SEC);
        return clock_settime(CLOCK_REALTIME, &now) < 0 ? -errno : 0;
}

int clock_apply(const struct clock_offset *offset, const char *source, struct report *report)
{
        uint64_t distance_ns = magnitude(offset->offset_ns);
        bool is_off = distance_ns > offset->bound_ns;

        report_fact(report, "source", "%s", source);
        report_fact(report, "offset_ns", "%" PRId64, offset->offset_ns);
        report_fact(report, "bound_ns", "%" PRIu64, offset->bound_ns);
        if (is_off) {
                int r = clock_step(offset->offset_ns);

                if (r < 0)
                        return report_errno(report, r, "clock_settime");
        }
        report_fact(report, "stepped", "%s", is_off ? "yes" : "no");
        report_detail(report, "%s by %s%" PRIu64 ".%06" PRIu64 " s, within %" PRIu64 " us of the host (%s)",
                is_off ? "stepped" : "left alone, off", offset->offset_ns < 0 ? "-" : "", distance_ns / NSEC_PER_SEC,
                distance_ns % NSEC_PER_SEC / NSEC_PER_USEC, offset->bound_ns / NSEC_PER_USEC + 1, source);
        return 0;
}
