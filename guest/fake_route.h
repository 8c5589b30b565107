/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes the pool's addresses the machine's own: `ip route add local 198.18.0.0/15 dev lo`, by rtnetlink. The local
 * table is looked at before any other, so that no other route matters. 0 (also if it was there, or whoever set up the
 * network namespace has seen to it, where we may not), or a negative errno.
 */
int fake_route_add(void);
