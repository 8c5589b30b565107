/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A command in a guest as if it were here: this process's stdin, stdout, stderr, signals and terminal are the
 * command's, neither direction waits for the other, and its end is ours. For `wbctl exec`, `attach` and `run`.
 */

#include <stdbool.h>
#include <stdint.h>

#include "proto/wb.pb-c.h"

struct session_options {
        bool terminal;           /* -t: ask for one on the other side, and make the local one raw */
        bool detach;             /* print the exec's id and leave it alone */
        const char *result_path; /* --result FILE; NULL: none */
        uint64_t answer_ms;      /* session_attach(): how long the agent may take to answer; what follows may last */
};

/*
 * Call before anything is opened: makes sure that 0, 1 and 2 are taken, so that no socket becomes the command's stdin.
 * Answers whether there was a stdin worth reading.
 */
bool session_prepare(void);

/*
 * Runs a command over a connection to the agent's control port, which is the session's from here on. Sets terminal,
 * detach and (with a terminal) TERM in start. Answers the exit status of INTERFACES.md: the command's own, 128+n, 124
 * to 127; what is to be said has been said on stderr.
 */
int session_exec(int fd, Wb__ExecStart *start, const struct session_options *options);

/* The same for an exec that is there; its input and our signals stay apart. */
int session_attach(int fd, Wb__ExecAttach *attach, const struct session_options *options);
