/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * RUN_DIR/control.sock, for wbctl and orchestrators. A request is one line of JSON, an object with `op`; its answer is
 * one line, and answers come in the order of the requests. A line is at most CONTROL_LINE_MAX_BYTES; the connection may
 * carry any number of them, one at a time.
 *
 *   {"op":"vm_add","name":"demo","backend":"firecracker","transport":"hybrid","path":"/run/vm/demo.vsock","pid":4242,"agent":true,
 *    "policy":"...","policy_file":"demo.yaml"}                   the policy's text; policy_file names it in messages;
 * cid with vsock
 *   {"op":"vm_rm","name":"demo"}
 *   {"op":"vm_ls"}                                               -> "vms": [VM, ...]
 *   {"op":"vm_show","name":"demo"}                               -> "vm": VM with layers and evidence
 *   {"op":"vm_policy","name":"demo","policy":"...","policy_file":"demo.yaml"}
 *   {"op":"vm_activate","name":"demo","secrets":{"TOKEN":"base64"}}  secrets may be absent
 *                                                -> "generation", "steps": [{name, ok, detail,
 * duration_ns, evidence}]
 *   {"op":"vm_quiesce","name":"demo"}
 *   {"op":"vm_revoke","name":"demo"}
 *   {"op":"secret_put","name":"demo","secret":"TOKEN","value":"base64","ttl_ms":600000}
 *                                                                -> "guest": "held", or "absent" until it is activated
 *   {"op":"secret_rm","name":"demo","secret":"TOKEN"}            answered when the guest has not got it any more either
 *   {"op":"secret_ls","name":"demo"}                             -> "secrets": [{name, left_ms, guest, kept}, ...]
 *   {"op":"ca_show"}
 *                                                   -> "ca": {sha256, not_before, not_after, intercepts, certificate}
 *   {"op":"ca_rotate"}                                           a new CA -> "ca", as above
 *   {"op":"reload"}                                              as SIGHUP; answered when it is done
 *   {"op":"stats"}                                               -> "vms", "sessions_open", ...
 *
 * A secret that is put is kept for each activation, and given at once to a guest that is active; ttl_ms may be absent.
 * Where that guest can't be told, a put or a removal fails, and yet holds at the broker. Of those that are listed
 * left_ms is null for one without a limit; guest is held, absent, or unsure (it could not be told); kept is false for
 * one that the guest alone has, of a single activation. "guest_error" says why an active guest could not be asked.
 *
 * An answer is {"ok":true, ...} or {"ok":false,"error":"for a person"} with, where it applies, "reason" (INTERFACES.md,
 * Reasons), "invalid":true (the request or its policy is wrong: `FILE:LINE:COLUMN: message` in error), "absent":true
 * (no such VM, or secret).
 */

#include "broker/registry.h"

#define CONTROL_LINE_MAX_BYTES (8u * 1024u * 1024u) /* a policy of 1 MiB, each byte escaped as \u00XX, and the rest */
#define CONTROL_PEERS_MAX      64u

/* So long a peer may take from one answer, or from its beginning, to the end of its next request. */
#define CONTROL_IDLE_MS 60000u

struct control;

/* listener is the control's from here on, also on failure. registry outlives it. idle_ms: CONTROL_IDLE_MS. */
int control_new(struct registry *registry, int listener, uint64_t idle_ms, struct control **ret);

/* Takes no more requests; those under way are still answered. */
void control_stop(struct control *c);
void control_free(struct control *c); /* takes NULL */

/* What the monitor made of a reload that was asked for here. */
void control_reloaded(struct control *c, int result);
