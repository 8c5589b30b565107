/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* "Bytes" of tests/cases/README-wire.md: what a wire case's member stands for. */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The bytes of member KEY (text, or parts to be joined) or KEY64 (base64 of the whole), with a NUL behind them. The
 * caller frees. NULL if the object has neither; ends the program on what README-wire.md does not know.
 */
uint8_t *wire_bytes(const json_t *object, const char *key, size_t *ret_n);
