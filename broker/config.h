/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The broker's configuration (INTERFACES.md, Broker configuration), text to struct. Pure; what is absent has its
 * default. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/address.h"
#include "broker/audit.h"
#include "broker/isolation.h"
#include "broker/wall.h"
#include "broker/worker.h"
#include "broker/yaml.h"
#include "proto/wire/transport.h"

#define CONFIG_VM_NAME_MAX 64u
#define CONFIG_VMS_MAX     4096u
#define WORKERS_MAX        256u

/* A text and where it stands, for messages about what it names. */
struct config_text {
        char *text;
        unsigned line;
        unsigned column;
};

struct config_vm {
        char *name;    /* letters, digits, `-`, `_`, `.`; at most CONFIG_VM_NAME_MAX */
        int backend;   /* enum backend */
        int transport; /* enum transport_kind */
        char *path;    /* absolute; NULL with vsock */
        uint64_t cid;  /* 0 unless vsock */
        uint64_t pid;  /* 0: absent */
        bool agent;
        struct config_text policy; /* as it stands in the file */
};

struct config {
        char *state_dir;
        char *run_dir;
        char *user;       /* NULL: stay */
        uint64_t workers; /* 0: one per core */

        char *audit_dir;
        bool audit_required;
        uint64_t audit_rotate_bytes;
        int audit_sync; /* enum audit_sync */

        struct hostname *dns_servers; /* none: the system's */
        size_t dns_servers_n;
        uint64_t dns_timeout_ms;
        uint64_t dns_cache_max_s;

        struct prefix *floor_deny;
        size_t floor_deny_n;
        char **floor_deny_names; /* canonical */
        size_t floor_deny_names_n;
        struct worker_service *services;
        size_t services_n;

        bool inspect_enabled;
        char *inspect_upstream_ca;

        uint64_t request_head_ms;
        uint64_t client_hello_ms;
        uint64_t connect_ms;
        uint64_t idle_ms;

        uint64_t clock_check_s; /* between two looks at a VM's clock */

        uint64_t vsock_port; /* 0: no AF_VSOCK listener */
        struct wall_rules wall;

        struct config_vm *vms;
        size_t vms_n;
};

/* 0; YAML_E_INVALID with *ret_error set; -ENOMEM. file is the name for messages. */
int config_load(const char *file, const char *text, size_t n, struct config **ret, struct yaml_error *ret_error);
void config_free(struct config *c); /* takes NULL */

/* The rules that a VM keeps wherever it comes from, the file or the control socket: NULL, or what is wrong with it. */
const char *config_vm_fault(const struct config_vm *vm, bool vsock_listens);

/* What two VMs cannot share: NULL, or what they do. */
const char *config_vm_clash(const struct config_vm *a, const struct config_vm *b);

/* Words of the file and of the control socket, by value. */
extern const struct yaml_words config_backend_words;
extern const struct yaml_words config_transport_words;
