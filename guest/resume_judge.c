/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/resume_judge.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static const char *const source_names[] = {
        [RESUME_VMCLOCK] = "vmclock",
        [RESUME_GENERATION] = "vmgenid",
        [RESUME_TRANSPORT] = "vsock reset",
        [RESUME_DEVICE] = "vsock device removed",
        [RESUME_CID] = "another CID",
};
static_assert(sizeof(source_names) / sizeof(source_names[0]) == RESUME_SOURCES, "a name for each source");

const char *resume_source_name(enum resume_source source)
{
        return source_names[source];
}

bool resume_is_true(enum resume_source source, const struct resume_view *view)
{
        if (view->has_vmclock)
                return view->vmclock_changed;
        /*
         * An activation comes over a connection, and no connection outlives a resume: this word is of the resume
         * before it. But the device is gone before there can be another one to connect over, and its CID is a state:
         * of both the activation took note when it began.
         */
        if (view->gate == GATE_ACTIVATING)
                return source == RESUME_CID || source == RESUME_DEVICE;
        if (view->stands_still)
                return source == RESUME_CID;
        return source != RESUME_VMCLOCK;
}

static const char *const gone_names[] = {
        [HOST_GONE_AUTO] = "auto",
        [HOST_GONE_THAW] = "thaw",
        [HOST_GONE_POWER_OFF] = "power-off",
        [HOST_GONE_STAY] = "stay",
};

enum host_gone host_gone_action(enum host_gone asked, enum standstill why)
{
        if (why == STANDSTILL_NONE)
                return HOST_GONE_STAY;
        if (asked != HOST_GONE_AUTO)
                return asked;
        return why == STANDSTILL_QUIESCED ? HOST_GONE_THAW : HOST_GONE_POWER_OFF;
}

int host_gone_parse(const char *text, enum host_gone *ret)
{
        for (enum host_gone i = HOST_GONE_AUTO; i <= HOST_GONE_STAY; i++)
                if (strcmp(text, gone_names[i]) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

const char *host_gone_name(enum host_gone what)
{
        return gone_names[what];
}
