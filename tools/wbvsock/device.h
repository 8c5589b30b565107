/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device between the two virtqueues and the streams: takes the guest's packets from tx, puts the guest's into rx.
 *
 * Bounded work: a round stops after a fixed number of packets and comes back by the loop, so that no flood starves
 * another descriptor. Back-pressure: without rx buffers streams are not read; with too many unsent resets tx is not
 * read.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tools/wbvsock/stream.h"
#include "tools/wbvsock/virtqueue.h"

enum device_queue {
        DEVICE_RX, /* to the guest */
        DEVICE_TX, /* from the guest */
        DEVICE_QUEUES,
};

struct device_setup {
        uint64_t guest_cid;
        struct streams_setup streams;
        /* Interrupts the guest for a queue; says that a queue is broken. */
        void (*notify)(enum device_queue which, void *arg);
        void (*broken)(enum device_queue which, void *arg);
        void *arg;
};

struct device;

/* 0 or -ENOMEM. seed is random. */
int device_new(const struct device_setup *setup, uint32_t seed, struct device **ret);
void device_free(struct device *d);

/* Both queues are in use until device_pause(); they are the caller's. */
void device_run(struct device *d, struct virtqueue *rx, struct virtqueue *tx);
void device_pause(struct device *d);
bool device_is_running(const struct device *d);

/* Another guest, or the same one anew: all connections are closed. */
void device_drop(struct device *d);

/* After a kick: works off what there is. */
void device_pump(struct device *d);

/* A host's connection that asked for a port of the guest; takes fd. 0 or a negative errno (-ENOTCONN: not running). */
int device_connect(struct device *d, uint32_t guest_port, int fd);
