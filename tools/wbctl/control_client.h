/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A question to the broker's control socket (broker/control.h says what may be asked), without a loop. */

#include <jansson.h>

/* path if given, else WB_SOCKET of the environment, else that of a broker with the default run_dir. */
const char *control_client_socket(const char *path);

/*
 * Asks and waits for the answer. question is taken. 0 with the answer in *ret; or said on stderr: EXIT_FAILED (no
 * broker there, or it failed), EXIT_USAGE (the question or a policy in it is invalid), EXIT_NO (refused by rule, or
 * there is no such VM).
 */
int control_client_ask(const char *socket_path, json_t *question, json_t **ret);
