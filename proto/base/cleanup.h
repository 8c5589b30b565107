/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cleanup attributes and the stealing that goes with them.
 *
 *     _cleanup_free_ char *text = strdup(s);
 *     _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
 *     ...
 *     *ret_fd = steal_fd(&fd);
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn)    __attribute__((__cleanup__(fn)))
#define _cleanup_free_   _cleanup_(cleanup_freep)
#define _cleanup_close_  _cleanup_(cleanup_closep)
#define _cleanup_fclose_ _cleanup_(cleanup_fclosep)

/* Defines fn##p for _cleanup_(fnp), where fn(T) frees a T that is not NULL. */
#define DEFINE_CLEANUP(T, fn)                                                                                          \
        static inline void fn##p(T *p)                                                                                 \
        {                                                                                                              \
                if (*p)                                                                                                \
                        fn(*p);                                                                                        \
        }                                                                                                              \
        struct cleanup_semicolon_

/* Closes fd if it is not negative and answers -1; errno stays, since the caller may be about to report it. */
static inline int close_fd(int fd)
{
        if (fd >= 0) {
                int saved_errno = errno;

                (void)close(fd);
                errno = saved_errno;
        }
        return -1;
}

static inline void cleanup_freep(void *p)
{
        free(*(void **)p);
}

static inline void cleanup_closep(int *fd)
{
        close_fd(*fd);
}

static inline void cleanup_fclosep(FILE **f)
{
        if (*f)
                (void)fclose(*f);
}

static inline int steal_fd(int *fd)
{
        int stolen = *fd;

        *fd = -1;
        return stolen;
}

static inline void *steal_pointer(void *pp)
{
        void **p = pp;
        void *stolen = *p;

        *p = NULL;
        return stolen;
}

/* Keeps the type, where steal_pointer() alone would give void *. */
#define STEAL(p) ((__typeof__(p))steal_pointer(&(p)))
