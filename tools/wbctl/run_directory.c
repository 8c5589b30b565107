/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define UID_FIRST         0x77620000u /* "wb": above what distributions and systemd give out, below 2^31 */
#define CID_FIRST         3u          /* of those that a guest may have (vsock(7)) */
#define UID_NOBODY        65534u
#define UID_MAP_MAX_BYTES (64u * 1024u)
#define LOG_SHOWN_MAX     (64u * 1024u)
#define LOG_LINES         24u /* a kernel's panic with its trace */

/* In a user namespace few uids exist: lines of first inside, first outside, count (user_namespaces(7)). */
static bool uid_exists(unsigned long uid)
{
        _cleanup_free_ char *text = NULL;
        char *at;

        if (io_read_file("/proc/self/uid_map", UID_MAP_MAX_BYTES, &text, NULL) < 0)
                return false;
        for (at = text; *at; at += strspn(at, " \n")) {
                unsigned long inside = strtoul(at, &at, 10);
                unsigned long count;

                (void)strtoul(at, &at, 10);
                count = strtoul(at, &at, 10);
                if (count == 0)
                        return false;
                if (uid >= inside && uid - inside < count)
                        return true;
        }
        return false;
}

/* Root gives each VM a uid of its own, so that one VM's QEMU can do nothing to another's. */
static void choose_user(struct run_directory *d, uint16_t number)
{
        if (geteuid() != 0)
                return;
        d->uid = uid_exists(UID_FIRST + number) ? UID_FIRST + number : UID_NOBODY;
        d->gid = d->uid;
}

static int path_of(char to[RUN_PATH_BYTES], const char *directory, const char *name)
{
        int n = snprintf(to, RUN_PATH_BYTES, "%s/%s", directory, name);

        return n < 0 || n >= (int)RUN_PATH_BYTES ? -ENAMETOOLONG : 0;
}

static int name_paths(struct run_directory *d)
{
        const struct {
                char *to;
                const char *directory;
                const char *name;
        } paths[] = {
                {d->vm, d->path, "vm"},
                {d->vsock, d->vm, "vsock"},
                {d->device, d->vm, "device"},
                {d->console, d->vm, "console"},
                {d->machine_log, d->path, "qemu.log"},
                {d->vsock_log, d->path, "wbvsock.log"},
                {d->broker, d->path, "broker"},
                {d->broker_config, d->path, "broker.yaml"},
                {d->broker_log, d->path, "broker.log"},
                {d->control, d->broker, "run/control.sock"},
                {d->no_network, d->path, "none.yaml"},
        };

        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
                if (path_of(paths[i].to, paths[i].directory, paths[i].name) < 0)
                        return -ENAMETOOLONG;
        return 0;
}

static int write_text(const char *path, const char *text)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        return fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
}

static int fill(struct run_directory *d)
{
        /* Others may pass through, to what they own inside. */
        if (chmod(d->path, 0711) < 0 || mkdir(d->vm, 0700) < 0 || mkdir(d->broker, 0711) < 0)
                return -errno;
        if (d->uid != 0 && chown(d->vm, d->uid, d->gid) < 0)
                return -errno;
        return write_text(d->no_network, "version: 1\nnetwork: none\n");
}

void run_directory_remove(const struct run_directory *d)
{
        (void)unlink(d->broker_config);
        (void)unlink(d->no_network);
        (void)rmdir(d->broker);
        (void)rmdir(d->vm);
        (void)rmdir(d->path);
}

int run_directory_make(struct run_directory *ret)
{
        struct run_directory d = {0};
        const char *temporary = getenv("TMPDIR");
        uint32_t number;

        if (!temporary || temporary[0] != '/')
                temporary = "/tmp";
        if (getrandom(&number, sizeof(number), 0) != sizeof(number))
                return -EIO;
        choose_user(&d, (uint16_t)number);
        (void)snprintf(d.name, sizeof(d.name), "run-%08" PRIx32, number);
        (void)snprintf(d.cid, sizeof(d.cid), "%" PRIu32, CID_FIRST + (number >> 1));

        int r = path_of(d.path, temporary, "wb-run.XXXXXX");

        if (r == 0)
                r = mkdtemp(d.path) ? 0 : -errno;
        if (r < 0) {
                fprintf(stderr, "wbctl: %s: %s\n", temporary, strerror(-r));
                return r;
        }
        r = name_paths(&d);
        if (r == 0)
                r = fill(&d);
        if (r < 0) {
                fprintf(stderr, "wbctl: %s: %s\n", d.path, strerror(-r));
                run_directory_remove(&d);
                return r;
        }
        *ret = d;
        return 0;
}

int run_directory_write_broker(const struct run_directory *d, bool trust)
{
        _cleanup_free_ char *text = NULL;
        const char *user = getpwnam("wbbroker") ? "wbbroker" : "nobody";
        int n = asprintf(&text,
                "state_dir: %s/state\n"
                "run_dir: %s/run\n"
                "workers: 1\n"
                "audit: {dir: %s/audit, sync: none}\n"
                "isolation: {trust_declared: %s}\n"
                "%s%s\n",
                d->broker, d->broker, d->broker, trust ? "true" : "false", geteuid() == 0 ? "user: " : "",
                geteuid() == 0 ? user : "");

        if (n < 0) {
                text = NULL;
                return -ENOMEM;
        }
        return write_text(d->broker_config, text);
}

/* The last LOG_LINES lines of text, each behind the name of where it comes from. The console's are whatever the guest
 * wrote. */
static void show_tail(const char *name, char *text)
{
        char *start = text + strlen(text);

        for (unsigned lines = 0; start > text; start--)
                if (start[-1] == '\n' && start[0] && ++lines == LOG_LINES)
                        break;
        for (char *line, *rest = start; (line = strsep(&rest, "\n"));) {
                for (char *c = line; *c; c++)
                        if ((unsigned char)*c < ' ' || *c == 0x7f)
                                *c = ' ';
                if (line[strspn(line, " ")])
                        fprintf(stderr, "  %s: %s\n", name, line);
        }
}

static void show_log(const char *name, const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return;
        if (st.st_size > LOG_SHOWN_MAX / 2)
                (void)lseek(fd, -(off_t)(LOG_SHOWN_MAX / 2), SEEK_END);
        if (io_read_fd(fd, LOG_SHOWN_MAX, &text, &n) == 0)
                show_tail(name, text);
}

void run_directory_show_logs(const struct run_directory *d)
{
        show_log("console", d->console);
        show_log("qemu", d->machine_log);
        show_log("wbvsock", d->vsock_log);
        show_log("wbbroker", d->broker_log);
}
