/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Has this machine been resumed from a snapshot? What says so, and whether it is to be believed; pure. Sources overlap,
 * and all but VMClock may come late: one that belongs to a resume after which the host has activated the guest must not
 * close it again.
 */

#include <stdbool.h>
#include <stdint.h>

#include "guest/gate.h"

enum resume_source {
        RESUME_VMCLOCK,    /* its marker changed: exact, and there before anything runs */
        RESUME_GENERATION, /* the kernel's vmgenid driver said so */
        RESUME_TRANSPORT,  /* the vsock device dropped all connections */
        RESUME_DEVICE,     /* the vsock device was taken away: nobody can be restored with it, or was reached since */
        RESUME_CID,        /* the vsock device has another CID than before */
        RESUME_SOURCES,
};

const char *resume_source_name(enum resume_source source);

struct resume_view {
        enum gate_state gate;
        bool has_vmclock;
        bool vmclock_changed; /* since the last activation began */
        bool stands_still;    /* after a resume already: the same one's other words add nothing */
};

/* True: whatever ran in this machine runs in another now. */
bool resume_is_true(enum resume_source source, const struct resume_view *view);

/* ---- and if the host does not come back */

/* Why a guest stands still. */
enum standstill {
        STANDSTILL_NONE,
        STANDSTILL_QUIESCED, /* the host said so, for a snapshot */
        STANDSTILL_RESUMED,  /* nobody said so */
};

enum host_gone {
        HOST_GONE_AUTO,
        HOST_GONE_THAW,
        HOST_GONE_POWER_OFF,
        HOST_GONE_STAY,
};

/* What is done about it, never HOST_GONE_AUTO: after a quiesce that nothing followed, the workloads are as good as
 * before; in what was resumed they may be one clone of many. */
enum host_gone host_gone_action(enum host_gone asked, enum standstill why);

/* "auto", "thaw", "power-off", "stay". 0 or -EINVAL. */
int host_gone_parse(const char *text, enum host_gone *ret);
const char *host_gone_name(enum host_gone what);
