/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where a conversation goes by its first message. */

#include "guest/control.h"

/* 0, or -EPROTO: this message opens none. */
int opening_take(struct control *c, const Wb__ToAgent *m);
