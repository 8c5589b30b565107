/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/filesystems.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define MOUNTINFO_MAX_BYTES (1024u * 1024u)

/* ---- which there are */

/* Is word one of a comma-separated list's? */
static bool has_option(const char *list, size_t n, const char *word)
{
        size_t word_n = strlen(word);

        for (const char *p = list; p < list + n; p += strcspn(p, ",") + 1)
                if (strncmp(p, word, word_n) == 0 && (p[word_n] == ',' || p + word_n == list + n))
                        return true;
        return false;
}

/* The kernel writes space, tab, newline and backslash as \ooo. */
static bool unescape(const char *from, size_t n, char *to, size_t room)
{
        size_t k = 0;

        for (size_t i = 0; i < n; i++) {
                unsigned char b = (unsigned char)from[i];

                if (k + 1 >= room)
                        return false;
                if (b == '\\' && i + 3 < n && from[i + 1] >= '0' && from[i + 1] <= '3') {
                        b = (unsigned char)((from[i + 1] - '0') << 6 | (from[i + 2] - '0') << 3 | (from[i + 3] - '0'));
                        i += 3;
                }
                to[k++] = (char)b;
        }
        to[k] = '\0';
        return true;
}

struct word {
        const char *at;
        size_t n;
};

#define FIELDS 6 /* ID, parent, device, root, mount point, options; then optional ones, "-", type, source */

static const char *next_word(const char *p, const char *end, struct word *ret)
{
        const char *space = memchr(p, ' ', (size_t)(end - p));

        *ret = (struct word){p, (size_t)((space ? space : end) - p)};
        return space ? space + 1 : end;
}

static bool is_on_a_disk(const struct word *type, const struct word *source)
{
        static const char *const others[] = {"fuse", "9p", "nfs", "squashfs", "iso9660"};

        if (source->n < 5 || memcmp(source->at, "/dev/", 5) != 0)
                return false;
        if (source->n >= 9 && memcmp(source->at, "/dev/loop", 9) == 0)
                return false;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                if (type->n >= strlen(others[i]) && memcmp(type->at, others[i], strlen(others[i])) == 0)
                        return false;
        return true;
}

/* The root of an initramfs is a tmpfs by another name. */
static bool is_in_memory(const struct word *type, const struct word *source)
{
        static const char *const names[] = {"tmpfs", "rootfs"};

        (void)source;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (type->n == strlen(names[i]) && memcmp(type->at, names[i], type->n) == 0)
                        return true;
        return false;
}

typedef bool (*kind_fn)(const struct word *type, const struct word *source);

static bool parse_line(const char *p, const char *end, kind_fn is_wanted, struct filesystem *ret)
{
        struct word w[FIELDS], word, type, source;

        for (size_t i = 0; i < FIELDS; i++)
                p = next_word(p, end, &w[i]);
        do
                p = next_word(p, end, &word);
        while (p < end && !(word.n == 1 && *word.at == '-'));
        p = next_word(p, end, &type);
        (void)next_word(p, end, &source);
        if (!is_wanted(&type, &source) || !has_option(w[5].at, w[5].n, "rw"))
                return false;
        if (w[2].n >= sizeof(ret->device) || !unescape(w[4].at, w[4].n, ret->path, sizeof(ret->path)))
                return false;
        memcpy(ret->device, w[2].at, w[2].n);
        ret->device[w[2].n] = '\0';
        return true;
}

static size_t find(const char *text, kind_fn is_wanted, struct filesystem ret[FILESYSTEMS_MAX])
{
        size_t n = 0;

        for (const char *p = text; *p && n < FILESYSTEMS_MAX; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] != '\0')) {
                bool known = false;

                if (!parse_line(p, p + strcspn(p, "\n"), is_wanted, &ret[n]))
                        continue;
                for (size_t i = 0; i < n; i++)
                        known |= strcmp(ret[i].device, ret[n].device) == 0;
                n += !known;
        }
        return n;
}

size_t filesystems_find(const char *text, struct filesystem ret[FILESYSTEMS_MAX])
{
        return find(text, is_on_a_disk, ret);
}

size_t filesystems_find_memory(const char *text, struct filesystem ret[FILESYSTEMS_MAX])
{
        return find(text, is_in_memory, ret);
}

/* ---- what is done to them */

size_t filesystems_list(struct filesystem **ret)
{
        _cleanup_free_ char *text = NULL;
        struct filesystem *items = calloc(FILESYSTEMS_MAX, sizeof(*items));
        size_t n = 0;

        if (items && io_read_file("/proc/self/mountinfo", MOUNTINFO_MAX_BYTES, &text, NULL) == 0)
                n = filesystems_find(text, items);
        *ret = items;
        return n;
}

static int act(const char *path, unsigned long request, void *argument)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        return ioctl(fd, request, argument) < 0 ? -errno : 0;
}

unsigned filesystems_thaw(void)
{
        _cleanup_free_ struct filesystem *list = NULL;
        unsigned thawed = 0;

        for (size_t i = filesystems_list(&list); i-- > 0;)
                thawed += act(list[i].path, FITHAW, NULL) == 0;
        return thawed;
}

int filesystems_freeze(unsigned *ret_n)
{
        _cleanup_free_ struct filesystem *list = NULL;
        size_t n = filesystems_list(&list);
        unsigned frozen = 0;

        if (!list)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                int r = act(list[i].path, FIFREEZE, NULL);

                if (r == -EOPNOTSUPP || r == -EBUSY) /* it cannot be, or it is */
                        continue;
                if (r < 0) {
                        (void)log_errno(r, "cannot freeze the filesystem at %s", list[i].path);
                        (void)filesystems_thaw();
                        return r;
                }
                frozen++;
        }
        *ret_n = frozen;
        return 0;
}

uint64_t filesystems_trim(void)
{
        _cleanup_free_ struct filesystem *list = NULL;
        size_t n = filesystems_list(&list);
        uint64_t bytes = 0;

        for (size_t i = 0; i < n; i++) {
                struct fstrim_range range = {.len = UINT64_MAX};

                if (act(list[i].path, FITRIM, &range) == 0)
                        bytes += range.len;
        }
        return bytes;
}
