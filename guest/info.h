/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the agent tells of itself: `wbctl info`. */

#include "guest/control.h"

/* Answers an InfoRequest. 0 or a negative errno of control_send(). */
int info_send(struct control *c);
