/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "proto/wire/transport.h"

/*
 * Gives up all privileges of this process and leaves it the calls that forwarding needs. Over vsock and where the
 * broker's unix socket lets anyone connect, the user becomes FORWARDER_UID; else the socket's owner, without
 * capabilities. 0 or a negative errno, logged.
 */
#define FORWARDER_UID 65534u /* nobody: owns nothing */

int forwarder_enter_sandbox(const struct transport *t);
