/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the host says of single secrets between activations. Each answers, and ends the conversation. */

#include "guest/control.h"

void secret_talk_put(struct control *c, const Wb__SecretPut *m);
void secret_talk_revoke(struct control *c, const Wb__SecretRevoke *m);
void secret_talk_list(struct control *c);
