/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ports and sizes that both sides of a conversation agree on (INTERFACES.md, Transports). */

#define WB_PORT_CONTROL 1024u /* the agent listens: frames of proto/wb.proto */
#define WB_PORT_EGRESS  1025u /* the broker listens: HTTP proxy or SOCKS5 */
#define WB_PORT_SERVICE 1026u /* the broker listens: name decisions, agent events */

#define WB_CID_HYPERVISOR 0u
#define WB_CID_LOCAL      1u /* linux/vm_sockets.h: VMADDR_CID_LOCAL */
#define WB_CID_HOST       2u /* VMADDR_CID_HOST */

/* A frame's payload; a larger one ends the connection. */
#define WB_FRAME_MAX_BYTES (1024u * 1024u)

/* Of port 1026: a name or a few sentences. */
#define WB_SERVICE_FRAME_MAX_BYTES 4096u
#define WB_SERVICE_REASON_MAX      64u
#define WB_SERVICE_DETAIL_MAX      2048u

/* One chunk of a stream in a frame: large enough for 1 GB/s, small enough to interleave streams. */
#define WB_CHUNK_MAX_BYTES (64u * 1024u)

/* What the kernel takes in one execve(): MAX_ARG_STRLEN (binfmts.h) for one string, its NUL included; for all of argv
 * and the environment three quarters of _STK_LIM (fs/exec.c, bprm_stack_limits()) with the largest of stacks, where
 * each string counts with its NUL and its pointer. */
#define WB_ARG_MAX_BYTES   (128u * 1024u)
#define WB_ARG_COST_BYTES  9u
#define WB_START_MAX_BYTES (6u * 1024u * 1024u)

/* Of argv, or of the environment, in one message. */
#define WB_ARGS_MAX 65536u

/* The loopback port where the agent's forwarder listens in the guest. */
#define WB_FORWARDER_PORT 3128u

/* Where connections to an address that stands for a name arrive, where the kernel can bring them there from all ports.
 */
#define WB_TRANSPARENT_PORT 3129u

#define WB_DNS_PORT 53u

/* BPF_MAXINSNS (linux/bpf_common.h), 8 bytes each. */
#define WB_SECCOMP_MAX_BYTES (4096u * 8u)

#define WB_CPU_PERCENT_MAX 100000u /* of one core: a thousand cores */

#define WB_SEED_BYTES       64u /* the host's entropy for one activation */
#define WB_NONCE_BYTES      16u
#define WB_SECRET_MAX_BYTES (64u * 1024u)
#define WB_SECRETS_MAX      64u
#define WB_SECRET_NAME_MAX  128u
#define WB_HOSTNAME_MAX     63u /* one label: sethostname(2) takes 64 */

#define WB_EXTENTS_MAX 256u /* of a sparse file, told with its entry */

#define WB_MEMORY_FILESYSTEMS_MAX 32u /* asked for, or told, at once */
#define WB_MEMORY_PATH_MAX        255u
