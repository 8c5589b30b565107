/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The texts that make a configuration, as the monitor read them: the configuration itself, the system's resolv.conf,
 * whom to trust upstream, and each policy that it names. They travel to the broker as one sealed memfd, so that both
 * halves judge the same bytes. Names are as messages show them.
 */

#include <stddef.h>

#include "broker/config.h"
#include "broker/inspect.h"
#include "broker/policy.h"
#include "broker/yaml.h"

struct file_text {
        char *name;
        char *text; /* NUL behind it */
        size_t n;
};

enum file_place {
        FILE_CONFIG,
        FILE_RESOLV_CONF,
        FILE_UPSTREAM_CA, /* inspect.upstream_ca; empty where it is not wanted or cannot be read */
        FILE_POLICIES,
};

struct file_set {
        struct file_text *files; /* by enum file_place, and from FILE_POLICIES on the policies */
        size_t n;
};

/* Reads all. 0; YAML_E_INVALID with *ret_error set; another negative errno. */
int file_set_read(const char *config_path, struct file_set **ret, struct yaml_error *ret_error);
void file_set_free(struct file_set *s); /* takes NULL */

int file_set_pack(const struct file_set *s, int *ret_memfd);
int file_set_unpack(int memfd, struct file_set **ret);

/* A configuration with the policies of its VMs. */
struct setup {
        struct config *config;
        struct policy **policies;   /* of config->vms, by index */
        struct hostname *resolvers; /* config->dns_servers, or the system's; at least one */
        size_t resolvers_n;
        struct inspect_trust *trust; /* NULL: nothing is intercepted, by the configuration or for want of a bundle;
                                        not looked into before setup_check_trust() */
};

/* Pure. 0; YAML_E_INVALID with *ret_error set; -ENOMEM. */
int setup_load(const struct file_set *files, struct setup **ret, struct yaml_error *ret_error);
void setup_free(struct setup *s); /* takes NULL */

/* Sets trust to NULL if there is no certificate in it. What before has, if it is not NULL, has been looked into: a
 * reload cuts what it must at once, and takes no time for what has not changed. */
void setup_check_trust(struct setup *s, const struct setup *before);
