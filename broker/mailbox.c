/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/mailbox.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

STAILQ_HEAD(mail_queue, mail);

struct mailbox {
        pthread_mutex_t lock; /* of queue */
        struct mail_queue queue;
        int event_fd;
        struct event event;
};

static void on_mail(evutil_socket_t fd, short what, void *userdata)
{
        struct mailbox *mb = userdata;
        struct mail_queue mine = STAILQ_HEAD_INITIALIZER(mine);
        uint64_t count;

        (void)what;
        (void)!read(fd, &count, sizeof(count));
        pthread_mutex_lock(&mb->lock);
        STAILQ_CONCAT(&mine, &mb->queue);
        pthread_mutex_unlock(&mb->lock);
        while (!STAILQ_EMPTY(&mine)) {
                struct mail *m = STAILQ_FIRST(&mine);

                STAILQ_REMOVE_HEAD(&mine, next);
                m->open(m);
        }
}

int mailbox_new(struct event_base *base, struct mailbox **ret)
{
        struct mailbox *mb = calloc(1, sizeof(*mb));

        if (!mb)
                return -ENOMEM;
        mb->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (mb->event_fd < 0) {
                free(mb);
                return -errno;
        }
        pthread_mutex_init(&mb->lock, NULL);
        STAILQ_INIT(&mb->queue);
        event_assign(&mb->event, base, mb->event_fd, EV_READ | EV_PERSIST, on_mail, mb);
        event_add(&mb->event, NULL);
        *ret = mb;
        return 0;
}

void mailbox_free(struct mailbox *mb)
{
        if (!mb)
                return;
        event_del(&mb->event);
        close_fd(mb->event_fd);
        pthread_mutex_destroy(&mb->lock);
        free(mb);
}

void mailbox_post(struct mailbox *mb, struct mail *m)
{
        const uint64_t one = 1;

        pthread_mutex_lock(&mb->lock);
        STAILQ_INSERT_TAIL(&mb->queue, m, next);
        pthread_mutex_unlock(&mb->lock);
        (void)!write(mb->event_fd, &one, sizeof(one)); /* a full counter wakes as well */
}
