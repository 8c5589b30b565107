/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "guest/users.h"
#include "proto/base/cleanup.h"
#include "proto/tree/reader.h"

static void cleanup_closedirp(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

int files_owner(struct talk *t, const char *owner, uid_t *ret_uid, gid_t *ret_gid)
{
        _cleanup_free_ struct identity *identity = malloc(sizeof(*identity));
        _cleanup_free_ char *fault = NULL;
        int r;

        *ret_uid = *ret_gid = 0;
        if (!*owner)
                return 0;
        if (!identity)
                return -ENOMEM;
        r = users_resolve(owner, identity, &fault);
        if (r == USERS_E_UNKNOWN) {
                talk_fail(t, "user_unknown", fault ? fault : owner);
                return FILES_E_SAID;
        }
        if (r < 0)
                return r;
        *ret_uid = identity->uid;
        *ret_gid = identity->gid;
        return 0;
}

/* ---- stat and list */

static int send_entry(struct talk *t, int dir, const char *name, const struct stat *st, bool with_name)
{
        char target[PLACE_PATH_MAX];
        Wb__FileEntry e = WB__FILE_ENTRY__INIT;
        Wb__FromAgent m = WB__FROM_AGENT__INIT;

        tree_entry_fill(&e, st);
        if (with_name)
                e.path = (ProtobufCBinaryData){.len = strlen(name), .data = (uint8_t *)(uintptr_t)name};
        if (S_ISLNK(st->st_mode)) {
                ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

                if (n > 0)
                        e.link = (ProtobufCBinaryData){.len = (size_t)n, .data = (uint8_t *)target};
        }
        m.body_case = WB__FROM_AGENT__BODY_FILE_ENTRY;
        m.file_entry = &e;
        return talk_send(t, &m);
}

int files_stat(struct talk *t, const Wb__FileStat *m)
{
        _cleanup_close_ int fd = -1;
        char name[TREE_NAME_MAX + 1] = "";
        struct stat st;
        int r = m->follow ? place_open(m->place, &fd) : place_open_parent(m->place, &fd, name);

        if (r < 0)
                return r;
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW | (name[0] ? 0 : AT_EMPTY_PATH)) < 0)
                return -errno;
        return send_entry(t, fd, name, &st, false);
}

static int list_names(struct talk *t, DIR *d, uint64_t *ret_n)
{
        const struct dirent *e;

        for (errno = 0; (e = readdir(d)); errno = 0) {
                struct stat st;
                int r;

                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (errno == ENOENT)
                                continue;
                        return -errno;
                }
                r = send_entry(t, dirfd(d), e->d_name, &st, true);
                if (r < 0)
                        return r;
                (*ret_n)++;
        }
        return -errno;
}

int files_list(struct talk *t, const Wb__FileList *m)
{
        _cleanup_close_ int path_fd = -1, fd = -1;
        _cleanup_(cleanup_closedirp) DIR *d = NULL;
        uint64_t n = 0;
        int r = place_open(m->place, &path_fd);

        if (r == 0)
                r = place_reopen(path_fd, O_RDONLY | O_DIRECTORY, &fd);
        if (r < 0)
                return r;
        d = fdopendir(fd);
        if (!d)
                return -errno;
        (void)steal_fd(&fd);
        r = list_names(t, d, &n);
        return r < 0 ? r : talk_send_done(t, n, 0, 0);
}

/* ---- mkdir */

struct new_directory {
        mode_t mode;
        uid_t uid;
        gid_t gid;
};

/* 0 or a negative errno; *ret_fd is the folder, whether it was there before or not. */
static int make_one(int dir, const char *name, const struct new_directory *new, int *ret_fd)
{
        bool made = mkdirat(dir, name, 0700) == 0;
        _cleanup_close_ int fd = -1;
        struct stat st;

        if (!made)
                return -errno;
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (st.st_uid != geteuid() || (st.st_mode & 0777) != 0700)
                return -EBUSY; /* not the one that was made */
        if (fchown(fd, new->uid, new->gid) < 0 || fchmod(fd, new->mode) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* Each component as the one asked for would be opened, so that the same rules hold. */
static int make_parents(const Wb__FilePlace *place, const struct new_directory *new, uint64_t *made)
{
        char path[PLACE_PATH_MAX], part[PLACE_PATH_MAX + 1];
        int r = place_normalize(&place->path, path);

        for (char *end = path; r == 0 && end && *end;) {
                _cleanup_close_ int dir = -1, fd = -1;
                char name[TREE_NAME_MAX + 1];
                Wb__FilePlace upto = *place;

                end = strchr(end + 1, '/');
                upto.path.len = (size_t)snprintf(part, sizeof(part), "/%.*s", (int)(end ? end - path : 4095), path);
                upto.path.data = (uint8_t *)part;
                r = place_open(&upto, &fd);
                if (r != -ENOENT)
                        continue;
                r = place_open_parent(&upto, &dir, name);
                if (r == 0)
                        r = make_one(dir, name, new, &fd);
                *made += r == 0;
                if (r == -EEXIST)
                        r = 0;
        }
        return r;
}

int files_mkdir(struct talk *t, const Wb__FileMkdir *m)
{
        struct new_directory new = {.mode = m->mode & 07777};
        char name[TREE_NAME_MAX + 1];
        _cleanup_close_ int dir = -1, fd = -1;
        uint64_t made = 0;
        struct stat st;
        int r = files_owner(t, m->owner, &new.uid, &new.gid);

        if (r != 0)
                return r;
        if (!m->place)
                return -EINVAL;
        if (!m->parents) {
                r = place_open_parent(m->place, &dir, name);
                if (r == 0)
                        r = make_one(dir, name, &new, &fd);
                return r < 0 ? r : talk_send_done(t, 1, 0, 0);
        }
        r = make_parents(m->place, &new, &made);
        if (r == 0)
                r = place_open(m->place, &fd);
        if (r == 0 && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
                r = -EEXIST;
        return r < 0 ? r : talk_send_done(t, made, 0, 0);
}

/* ---- remove */

static int remove_name(int dir, const char *name, bool recursive, unsigned depth, uint64_t *removed);

static int remove_contents(int dir, const char *name, unsigned depth, uint64_t *removed)
{
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(cleanup_closedirp) DIR *d = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *e;

        if (!d)
                return -errno;
        (void)steal_fd(&fd);
        if (depth == TREE_DEPTH_MAX)
                return -ENAMETOOLONG;
        for (errno = 0; (e = readdir(d)); errno = 0) {
                int r;

                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                r = remove_name(dirfd(d), e->d_name, true, depth + 1, removed);
                if (r < 0 && r != -ENOENT)
                        return r;
        }
        return -errno;
}

/* A symbolic link is removed, and never followed. */
static int remove_name(int dir, const char *name, bool recursive, unsigned depth, uint64_t *removed)
{
        struct stat st;
        int r = 0;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode) && recursive)
                r = remove_contents(dir, name, depth, removed);
        if (r < 0)
                return r;
        if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
                return -errno;
        (*removed)++;
        return 0;
}

int files_remove(struct talk *t, const Wb__FileRemove *m)
{
        _cleanup_close_ int dir = -1;
        char name[TREE_NAME_MAX + 1];
        uint64_t removed = 0;
        int r = place_open_parent(m->place, &dir, name);

        if (r == 0 && strcmp(name, ".") == 0)
                r = -EBUSY;
        if (r == 0)
                r = remove_name(dir, name, m->recursive, 0, &removed);
        return r < 0 ? r : talk_send_done(t, removed, 0, 0);
}

/* ---- rename */

int files_rename(struct talk *t, const Wb__FileRename *m)
{
        _cleanup_close_ int from = -1, to = -1;
        char from_name[TREE_NAME_MAX + 1], to_name[TREE_NAME_MAX + 1];
        int r = place_open_parent(m->from, &from, from_name);

        if (r == 0)
                r = place_open_parent(m->to, &to, to_name);
        if (r < 0)
                return r;
        if (renameat2(from, from_name, to, to_name, m->replace ? 0 : RENAME_NOREPLACE) < 0)
                return -errno;
        return talk_send_done(t, 1, 0, 0);
}
