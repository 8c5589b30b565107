/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * wbagent --selftest: tells who builds an image what this kernel and this image lack, and what follows from that. It
 * changes nothing, needs no host, and is to be run where the agent will run.
 */

#include <stdbool.h>

/* Prints one line for each, or a JSON array. 0; 1 if something is lacking without which the agent cannot do its work.
 */
int selftest_run(bool json);
