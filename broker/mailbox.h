/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How other threads reach an event loop: mail that is opened on the loop's thread, in the order it was posted. A mail
 * is embedded in what sends it, so that the queue is as long as there are senders and posting cannot fail.
 */

#include <event2/event.h>
#include <sys/queue.h>

struct mail {
        STAILQ_ENTRY(mail) next;      /* private */
        void (*open)(struct mail *m); /* may free it */
};

struct mailbox;

int mailbox_new(struct event_base *base, struct mailbox **ret);
void mailbox_free(struct mailbox *mb); /* nobody may post any more; mail that is left is not opened. Takes NULL. */

/* From any thread. */
void mailbox_post(struct mailbox *mb, struct mail *m);
