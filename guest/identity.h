/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who this guest is: the host's name, and which life of the machine it is. IDENTITY_GENERATION_FILE is replaced
 * atomically at each activation, so that a process that must not go on after a resume as if nothing had happened (a
 * random generator, a cache of addresses) can watch it.
 */

#include <stdint.h>

#include "guest/report.h"

#define IDENTITY_RUN_DIR         "/run/wbagent"
#define IDENTITY_GENERATION_FILE IDENTITY_RUN_DIR "/generation"
#define IDENTITY_ID_BYTES        33 /* 32 hex digits and a NUL */

/* Draws a fresh id for this generation; hostname may be empty: it is left alone. 0 or a negative errno, said in the
 * report. */
int identity_set(const char *hostname, uint64_t generation, char ret_id[IDENTITY_ID_BYTES], struct report *report);

/* The generation in the file, so that an agent that was restarted does not accept an old one. 0 if there is none. */
uint64_t identity_last_generation(void);
