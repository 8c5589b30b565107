/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who a workload runs as, read from the guest's own passwd(5) and group(5) text without NSS. Pure, but for
 * users_resolve().
 *
 * A user is asked for as U[:G][,G...]: names or numbers. Without :G, a user of the passwd file brings its group and the
 * groups that list it; an unknown number brings gid = uid and no other group. With :G there are no other groups than
 * those named.
 */

#include <stddef.h>
#include <sys/types.h>

#define USERS_GROUPS_MAX 256
#define USERS_NAME_MAX   256  /* LOGIN_NAME_MAX */
#define USERS_HOME_MAX   4096 /* PATH_MAX */

struct identity {
        uid_t uid;
        gid_t gid;
        gid_t groups[USERS_GROUPS_MAX]; /* gid is the first of them */
        size_t groups_n;
        char name[USERS_NAME_MAX]; /* the number where the user has no name */
        char home[USERS_HOME_MAX]; /* "/" where the passwd file does not say */
};

#define USERS_E_UNKNOWN 1

/*
 * spec may be empty: root. 0; USERS_E_UNKNOWN, and *ret_fault says which name, in memory that the caller frees;
 * -ENOMEM; -E2BIG (more groups than USERS_GROUPS_MAX).
 */
int users_find(const char *passwd, const char *group, const char *spec, struct identity *ret, char **ret_fault);

/* The same over /etc/passwd and /etc/group as they are now; a missing file counts as empty. */
int users_resolve(const char *spec, struct identity *ret, char **ret_fault);
