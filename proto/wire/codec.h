/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Between frames and messages. Unpacking is bounded in memory, whatever the payload says, and checks every bound that
 * wb.proto and limits.h state, so that past the codec nobody sees an unchecked message: a body is there, enums are
 * known, texts have no control bytes, kernel strings no NUL, lists and sizes are within their limits. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#include "proto/wb.pb-c.h"

#define CODEC_E_MALFORMED 1

/* 0 or CODEC_E_MALFORMED (also where memory ran out: protobuf-c does not tell). *ret is freed with codec_free_*(). */
int codec_unpack_to_agent(const uint8_t *payload, size_t n, Wb__ToAgent **ret);
int codec_unpack_from_agent(const uint8_t *payload, size_t n, Wb__FromAgent **ret);

/* Of port 1026. */
int codec_unpack_service_request(const uint8_t *payload, size_t n, Wb__ServiceRequest **ret);
int codec_unpack_service_answer(const uint8_t *payload, size_t n, Wb__ServiceAnswer **ret);
void codec_free_service_request(Wb__ServiceRequest *m); /* take NULL */
void codec_free_service_answer(Wb__ServiceAnswer *m);

/* Both take NULL. Secrets in the message are wiped first. */
void codec_free_to_agent(Wb__ToAgent *m);
void codec_free_from_agent(Wb__FromAgent *m);

/*
 * A whole frame, header included; the caller frees *ret_frame (with explicit_bzero() first if it carries a secret).
 * 0, -EMSGSIZE (the payload would be above WB_FRAME_MAX_BYTES), -ENOMEM.
 */
int codec_pack_to_agent(const Wb__ToAgent *m, uint8_t **ret_frame, size_t *ret_n);
int codec_pack_from_agent(const Wb__FromAgent *m, uint8_t **ret_frame, size_t *ret_n);
int codec_pack_service_request(const Wb__ServiceRequest *m, uint8_t **ret_frame, size_t *ret_n);
int codec_pack_service_answer(const Wb__ServiceAnswer *m, uint8_t **ret_frame, size_t *ret_n);
