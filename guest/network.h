/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's way out. Where a broker listens on the host, a forwarder on the loopback carries its proxy to workloads,
 * which hear of it by the usual environment variables; those that do not look at them find it by the names that they
 * ask for (guest/forwarder). Certificates of the broker's CA are added to the image's own in one bundle.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/listeners.h"
#include "guest/report.h"

struct agent;
struct network;

/* What an activation asks for. */
struct network_config {
        bool egress;
        uint16_t ports[LISTENERS_PORTS_MAX]; /* that the policy allows: see guest/listeners */
        size_t ports_n;
        struct network_pem {
                uint8_t *bytes;
                size_t n;
        } * ca;
        size_t ca_n;
};

/* Does a broker listen on the host? */
bool network_has_egress(const struct network *network);

/* The image's own bundle of certificates, or NULL. */
const char *network_image_bundle(void);

int network_new(struct agent *agent, struct network **ret);

/* Takes NULL. */
void network_free(struct network *network);

/*
 * Starts or stops the forwarder and sets agent->workload_env; a forwarder that runs is replaced, so that no connection
 * of an earlier life is left. 0 or a negative errno, said in the report.
 */
int network_apply(struct network *network, const struct network_config *config, struct report *report);

/* The same as the last time, anew. 0 or a negative errno, said in the report. */
int network_resume(struct network *network, struct report *report);

/* Ends all connections and whoever listens, until one of the above. */
void network_stop(struct network *network);

/* "running", "restarting", "stopped". */
const char *network_forwarder_state(const struct network *network);

/* The variables alone; pure. *ret is NULL-terminated and freed with network_free_env(). */
int network_make_env(bool egress, const char *ca_file, char ***ret);
void network_free_env(char **env);
