/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of an exec's `:mount` secrets: a tmpfs that no mount namespace shows but the exec's own. The agent makes
 * it, fills it and keeps its descriptor, by which it takes files away again whatever the exec has made of its namespace
 * meanwhile: no path is ever looked up there. Needs Linux 5.2 (fsopen(2)).
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Where it stands in the exec's mount namespace. */
#define SECRET_MOUNT_DIRECTORY "/run/wbagent/secrets"

/* One file of it. value lives for the call. */
struct secret_file {
        const char *name; /* no slash */
        const uint8_t *value;
        size_t value_n;
};

/*
 * Memory that is never swapped, with room for these files and nothing more, so that nobody fills the machine through
 * it. They are of mode 0400 and belong to uid and gid. *ret_fd, close-on-exec, is the caller's. 0 or a negative errno.
 */
int secret_mount_new(const struct secret_file *files, size_t n, uid_t uid, gid_t gid, int *ret_fd);

/* In the child, between fork and execve(2): a mount namespace of its own, with the mount in it. 0 or a negative errno.
 */
int secret_mount_attach(int fd);

/* Overwrites the file, so that who has it open reads nothing of it any more, and removes it. One that is not there is
 * gone already. */
void secret_mount_remove(int fd, const char *name);
