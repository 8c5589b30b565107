/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Descriptors: whole reads and writes, and passing them between processes. */

#include <stddef.h>
#include <sys/types.h>

/* Reads n bytes, also over EINTR and short reads. 0, -EPIPE if the end came first, or a negative errno. */
int io_read_full(int fd, void *to, size_t n);

/* Writes n bytes; on a non-blocking descriptor it waits with poll(). 0 or a negative errno. Sends no SIGPIPE on
 * sockets. */
int io_write_full(int fd, const void *from, size_t n);

/*
 * A regular file's or a pipe's whole text with a NUL behind it, at most max_bytes: -EFBIG if it is larger.
 * The caller frees *ret_text.
 */
int io_read_file(const char *path, size_t max_bytes, char **ret_text, size_t *ret_n);
int io_read_fd(int fd, size_t max_bytes, char **ret_text, size_t *ret_n);

/* Writes text as the whole of an existing file, such as one of /proc or a cgroup's, in one write(2). */
int io_write_file(const char *path, const char *text);

int io_set_nonblock(int fd);
int io_set_cloexec(int fd, int on);

/*
 * One message over a SEQPACKET or STREAM unix socket with up to IO_FDS_MAX descriptors. io_recv_fds() gives the bytes
 * read (0 at the end) or a negative errno; descriptors come close-on-exec, more than *fds_n ends in -EMSGSIZE with all
 * closed. *fds_n is room before and count after.
 */
#define IO_FDS_MAX 16
ssize_t io_send_fds(int sock, const void *data, size_t n, const int *fds, size_t fds_n);
ssize_t io_recv_fds(int sock, void *data, size_t n, int *fds, size_t *fds_n);
