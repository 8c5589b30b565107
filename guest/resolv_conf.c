/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/resolv_conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/identity.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define OURS      IDENTITY_RUN_DIR "/resolv.conf"
#define OURS_NEXT OURS ".next"
#define THEIRS    "/etc/resolv.conf"

static const char text[] = "# Of wbagent: names are decided by the host's policy.\n"
                           "nameserver 127.0.0.1\n";

static int write_ours(void)
{
        _cleanup_close_ int fd = -1;
        int r;

        if (access(OURS, F_OK) == 0)
                return 0; /* it may be mounted: another file would not be the one that is seen */
        if (mkdir(IDENTITY_RUN_DIR, 0755) < 0 && errno != EEXIST)
                return -errno;
        fd = open(OURS_NEXT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return -errno;
        r = io_write_full(fd, text, sizeof(text) - 1);
        if (r < 0)
                return r;
        return rename(OURS_NEXT, OURS) < 0 ? -errno : 0;
}

static bool is_ours(void)
{
        struct stat ours, theirs;

        return stat(OURS, &ours) == 0 && stat(THEIRS, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
               ours.st_ino == theirs.st_ino;
}

/* For an image that has none, or a link that leads nowhere. */
static int make_link(void)
{
        struct stat st;

        if (lstat(THEIRS, &st) == 0 && !S_ISLNK(st.st_mode))
                return -EEXIST;
        if (unlink(THEIRS) < 0 && errno != ENOENT)
                return -errno;
        return symlink(OURS, THEIRS) < 0 ? -errno : 0;
}

int resolv_conf_install(struct report *report)
{
        int r = write_ours();

        if (r == 0 && !is_ours() && mount(OURS, THEIRS, NULL, MS_BIND, NULL) < 0)
                r = errno == ENOENT ? make_link() : -errno;
        if (r < 0)
                report_fact(report, "resolv_conf", "none: %s", strerrordesc_np(-r));
        else
                report_fact(report, "resolv_conf", "%s", OURS);
        return r;
}
