/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "guest/report.h"

/*
 * Has the workloads' resolvers ask the DNS stub. The image's own /etc/resolv.conf is not written to: ours is mounted
 * over it, which also works on a root that is read-only; where there is none, a link is made. 0 or a negative errno;
 * what was done is said in the report.
 */
int resolv_conf_install(struct report *report);
