/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/config.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "broker/config_value.h"
#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

#define ROTATE_MIN_BYTES 4096u /* a few records */
#define ROTATE_MAX_BYTES (UINT64_C(1) << 40)
#define TIMEOUT_MAX_MS   (UINT64_C(24) * 3600 * 1000)
#define CACHE_MAX_S      86400u
#define LIST_MAX         1024u
#define CID_MIN          3u               /* below are the hypervisor, loopback and the host */
#define CID_MAX          (UINT32_MAX - 1) /* VMADDR_CID_ANY is no guest */
#define PID_MAX          (1u << 22)       /* PID_MAX_LIMIT, linux/threads.h */

static const char *const backend_words[] = {
        [BACKEND_FIRECRACKER] = "firecracker",
        [BACKEND_CLOUD_HYPERVISOR] = "cloud-hypervisor",
        [BACKEND_QEMU] = "qemu",
        [BACKEND_GVISOR] = "gvisor",
        [BACKEND_RUNC] = "runc",
        [BACKEND_OTHER] = "other",
};
static_assert(COUNT(backend_words) == BACKEND_MAX_, "a backend has no word");
const struct yaml_words config_backend_words = {backend_words, COUNT(backend_words)};

static const char *const transport_words[] = {
        [TRANSPORT_UNIX] = "unix",
        [TRANSPORT_HYBRID] = "hybrid",
        [TRANSPORT_VSOCK] = "vsock",
};
const struct yaml_words config_transport_words = {transport_words, COUNT(transport_words)};

static const char *const sync_words[] = {
        [AUDIT_SYNC_NONE] = "none",
        [AUDIT_SYNC_BATCH] = "batch",
        [AUDIT_SYNC_EACH] = "each",
};
static const struct yaml_words audit_sync_words = {sync_words, COUNT(sync_words)};

/* The layers that can be demanded. */
static const enum layer required_layers[] = {LAYER_UID, LAYER_SECCOMP, LAYER_NETNS, LAYER_CHROOT, LAYER_CGROUP};
static const char *const layer_texts[] = {"uid", "seccomp", "netns", "chroot", "cgroup"};
static_assert(COUNT(required_layers) == COUNT(layer_texts), "a layer has no word");
static const struct yaml_words layer_words = {layer_texts, COUNT(layer_texts)};

static const struct yaml_range workers_range = {0, WORKERS_MAX};
static const struct yaml_range rotate_range = {ROTATE_MIN_BYTES, ROTATE_MAX_BYTES};
static const struct yaml_range timeout_range = {1, TIMEOUT_MAX_MS};
static const struct yaml_range cache_range = {0, CACHE_MAX_S};
static const struct yaml_range vsock_port_range = {1, UINT32_MAX - 1};
static const struct yaml_range cid_range = {CID_MIN, CID_MAX};
static const struct yaml_range pid_range = {1, PID_MAX};
static const struct yaml_range recheck_range = {1, 86400};
static const struct yaml_range clock_check_range = {1, 86400};

#define FIELD(T, k, b, m, ...)                                                                                         \
        {                                                                                                              \
                .key = (k), .bind = (b), .offset = offsetof(T, m), __VA_ARGS__                                         \
        }
#define LIST(T, m, item, b, list_most)                                                                                 \
        &(const struct value_list)                                                                                     \
        {                                                                                                              \
                .item_bytes = sizeof(item), .count_offset = (ptrdiff_t)offsetof(T, m##_n) - (ptrdiff_t)offsetof(T, m), \
                .most = (list_most), .bind = (b)                                                                       \
        }

static const struct yaml_field service_fields[] = {
        FIELD(struct worker_service, "name", value_bind_name, name, .required = true),
        FIELD(struct worker_service, "ports", value_bind_list, ports,
                .detail = LIST(struct worker_service, ports, uint16_t, value_bind_port, LIST_MAX)),
        FIELD(struct worker_service, "connect", value_bind_endpoint, connect, .required = true),
};

static int bind_service(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct worker_service *service = member;
        int r;

        (void)f;
        if (v->kind != YAML_MAPPING)
                return yaml_fail(c, v, "a service is {name, ports, connect}");
        r = yaml_bind(c, v, service_fields, COUNT(service_fields), service);
        if (r != 0 || service->ports_n)
                return r;
        /* Absent, as in a rule. */
        service->ports = malloc(2 * sizeof(*service->ports));
        if (!service->ports)
                return -ENOMEM;
        service->ports[0] = 80;
        service->ports[1] = 443;
        service->ports_n = 2;
        return 0;
}

/* A set of layers as a list of words. */
static int bind_layers(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const struct yaml_field word = {.key = f->key, .detail = &layer_words};
        layer_set *set = member;

        if (v->kind != YAML_SEQUENCE)
                return yaml_fail(c, v, "%s must be a list", f->key);
        for (size_t i = 0; i < v->items_n; i++) {
                int layer = 0, r = yaml_bind_enum(c, v->items[i], &word, &layer);

                if (r != 0)
                        return r;
                if (*set & LAYER_BIT(required_layers[layer]))
                        return yaml_fail(c, v->items[i], "%s stands there already", v->items[i]->text);
                *set |= LAYER_BIT(required_layers[layer]);
        }
        return 0;
}

static int hex_digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int bind_sha256(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct allowed_program *program = member;

        for (size_t i = 0; v->kind == YAML_SCALAR && v->text_n == 64 && i < 64; i += 2) {
                int high = hex_digit(v->text[i]), low = hex_digit(v->text[i + 1]);

                if (high < 0 || low < 0)
                        return yaml_fail(c, v, "%s is 64 hexadecimal digits in lower case", f->key);
                program->sha256[i / 2] = (uint8_t)(high << 4 | low);
                program->has_sha256 = i == 62;
        }
        return program->has_sha256 ? 0 : yaml_fail(c, v, "%s is 64 hexadecimal digits in lower case", f->key);
}

static int bind_program(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        static const struct yaml_field fields[] = {
                FIELD(struct allowed_program, "path", value_bind_path, path),
                {.key = "sha256", .bind = bind_sha256}, /* of the whole */
        };
        struct allowed_program *program = member;
        int r;

        (void)f;
        if (v->kind != YAML_MAPPING)
                return yaml_fail(c, v, "a program is {path, sha256}");
        r = yaml_bind(c, v, fields, COUNT(fields), program);
        return r != 0 || program->path || program->has_sha256 ? r : yaml_fail(c, v, "path or sha256 is needed");
}

/* Backends that exist and can't be, with why, before the list of those that can. */
static int bind_backend(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const char *why = v->kind == YAML_SCALAR ? backend_refusal(v->text) : NULL;

        return why ? yaml_fail(c, v, "%s", why) : yaml_bind_enum(c, v, f, member);
}

const char *config_vm_fault(const struct config_vm *vm, bool vsock_listens)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
        size_t n = strlen(vm->name);

        if (n == 0 || n > CONFIG_VM_NAME_MAX || strspn(vm->name, allowed) != n || vm->name[0] == '.' ||
                vm->name[0] == '-')
                return "a VM's name is 1 to 64 letters, digits, `-`, `_`, `.`, and does not begin with `-` or `.`";
        if (vm->transport == TRANSPORT_VSOCK) {
                if (vm->path || vm->cid == 0)
                        return "transport vsock wants `cid` and no `path`";
                return vsock_listens ? NULL
                                     : "transport vsock wants a listener: `vsock: {port: 1025}` in the configuration";
        }
        if (!vm->path || vm->cid != 0)
                return "transport unix or hybrid wants `path` and no `cid`";
        if (vm->path[0] != '/')
                return "`path` must be an absolute path";
        if (strlen(vm->path) + sizeof("/1025") > sizeof(((struct sockaddr_un *)NULL)->sun_path))
                return "`path` is too long for a unix socket";
        return NULL;
}

const char *config_vm_clash(const struct config_vm *a, const struct config_vm *b)
{
        if (strcmp(a->name, b->name) == 0)
                return "name";
        if (a->path && b->path && strcmp(a->path, b->path) == 0)
                return "path";
        return a->cid && a->cid == b->cid ? "cid" : NULL;
}

static int bind_vm(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        static const struct yaml_field fields[] = {
                FIELD(struct config_vm, "name", yaml_bind_string, name, .required = true),
                FIELD(struct config_vm, "backend", bind_backend, backend, .detail = &config_backend_words,
                        .required = true),
                FIELD(struct config_vm, "transport", yaml_bind_enum, transport, .detail = &config_transport_words,
                        .required = true),
                FIELD(struct config_vm, "path", value_bind_path, path),
                FIELD(struct config_vm, "cid", yaml_bind_u64, cid, .detail = &cid_range),
                FIELD(struct config_vm, "pid", yaml_bind_u64, pid, .detail = &pid_range),
                FIELD(struct config_vm, "agent", yaml_bind_bool, agent),
                FIELD(struct config_vm, "policy", value_bind_located, policy, .required = true),
        };
        struct config_vm *vm = member;

        (void)f;
        if (v->kind != YAML_MAPPING)
                return yaml_fail(c, v, "a VM is a mapping with name, backend, transport, policy");
        vm->agent = true;
        return yaml_bind(c, v, fields, COUNT(fields), vm);
}

#define C(k, b, m, ...) FIELD(struct config, k, b, m, __VA_ARGS__)
#define OBJECT(fields)                                                                                                 \
        &(const struct yaml_object)                                                                                    \
        {                                                                                                              \
                (fields), COUNT(fields)                                                                                \
        }

static const struct yaml_field audit_fields[] = {
        C("dir", value_bind_path, audit_dir),
        C("required", yaml_bind_bool, audit_required),
        C("rotate_bytes", yaml_bind_u64, audit_rotate_bytes, .detail = &rotate_range),
        C("sync", yaml_bind_enum, audit_sync, .detail = &audit_sync_words),
};
static const struct yaml_field dns_fields[] = {
        C("servers", value_bind_list, dns_servers,
                .detail = LIST(struct config, dns_servers, struct hostname, value_bind_address, LIST_MAX)),
        C("timeout_ms", yaml_bind_u64, dns_timeout_ms, .detail = &timeout_range),
        C("cache_max_s", yaml_bind_u64, dns_cache_max_s, .detail = &cache_range),
};
static const struct yaml_field floor_fields[] = {
        C("deny", value_bind_list, floor_deny,
                .detail = LIST(struct config, floor_deny, struct prefix, value_bind_prefix, LIST_MAX)),
        C("deny_names", value_bind_list, floor_deny_names,
                .detail = LIST(struct config, floor_deny_names, char *, value_bind_name, LIST_MAX)),
};
static const struct yaml_field inspect_fields[] = {
        C("enabled", yaml_bind_bool, inspect_enabled),
        C("upstream_ca", value_bind_path, inspect_upstream_ca),
};
static const struct yaml_field timeouts_fields[] = {
        C("request_head_ms", yaml_bind_u64, request_head_ms, .detail = &timeout_range),
        C("client_hello_ms", yaml_bind_u64, client_hello_ms, .detail = &timeout_range),
        C("connect_ms", yaml_bind_u64, connect_ms, .detail = &timeout_range),
        C("idle_ms", yaml_bind_u64, idle_ms, .detail = &timeout_range),
};
static const struct yaml_field clock_fields[] = {
        C("check_s", yaml_bind_u64, clock_check_s, .detail = &clock_check_range),
};
static const struct yaml_field vsock_fields[] = {
        C("port", yaml_bind_u64, vsock_port, .detail = &vsock_port_range),
};
static const struct yaml_field isolation_fields[] = {
        C("trust_declared", yaml_bind_bool, wall.trust_declared),
        C("require_layers", bind_layers, wall.required),
        C("programs", value_bind_list, wall.programs,
                .detail = LIST(struct config, wall.programs, struct allowed_program, bind_program, LIST_MAX)),
        C("recheck_s", yaml_bind_u64, wall.recheck_s, .detail = &recheck_range),
};

/* `vsock: {}` says that a listener is wanted, on the port of INTERFACES.md. */
static int bind_vsock(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        ((struct config *)member)->vsock_port = WB_PORT_EGRESS;
        return yaml_bind_object(c, v, f, member);
}

/* Members stand in struct config itself: the offsets of the groups' tables count from its start, so a group's own
 * offset is 0. */
#define GROUP(k, b, fields)                                                                                            \
        {                                                                                                              \
                .key = (k), .bind = (b), .offset = 0, .detail = OBJECT(fields)                                         \
        }

static const struct yaml_field top_fields[] = {
        C("state_dir", value_bind_path, state_dir),
        C("run_dir", value_bind_path, run_dir),
        C("user", value_bind_user, user),
        C("workers", yaml_bind_u64, workers, .detail = &workers_range),
        GROUP("audit", yaml_bind_object, audit_fields),
        GROUP("dns", yaml_bind_object, dns_fields),
        GROUP("floor", yaml_bind_object, floor_fields),
        C("services", value_bind_list, services,
                .detail = LIST(struct config, services, struct worker_service, bind_service, LIST_MAX)),
        GROUP("inspect", yaml_bind_object, inspect_fields),
        GROUP("timeouts", yaml_bind_object, timeouts_fields),
        GROUP("clock", yaml_bind_object, clock_fields),
        GROUP("vsock", bind_vsock, vsock_fields),
        C("allow_container_standard", yaml_bind_bool, wall.allow_container_standard),
        GROUP("isolation", yaml_bind_object, isolation_fields),
        C("vms", value_bind_list, vms, .detail = LIST(struct config, vms, struct config_vm, bind_vm, CONFIG_VMS_MAX)),
};

static const struct yaml_node *find_value(const struct yaml_node *mapping, const char *key)
{
        for (size_t i = 0; mapping->kind == YAML_MAPPING && i + 1 < mapping->items_n; i += 2)
                if (strcmp(mapping->items[i]->text, key) == 0)
                        return mapping->items[i + 1];
        return NULL;
}

/* What only the whole shows: whether `vsock` comes behind `vms` in the file does not matter. */
static int check_vms(const struct yaml_context *c, const struct config *config)
{
        const struct yaml_node *list = find_value(yaml_root(c->document), "vms");

        for (size_t i = 0; i < config->vms_n; i++) {
                const char *fault = config_vm_fault(&config->vms[i], config->vsock_port != 0);

                if (fault)
                        return yaml_fail(c, list->items[i], "%s", fault);
                for (size_t j = 0; j < i; j++) {
                        const char *shared = config_vm_clash(&config->vms[j], &config->vms[i]);

                        if (shared)
                                return yaml_fail(c, find_value(list->items[i], shared),
                                        "another VM has this %s already", shared);
                }
        }
        return 0;
}

static int check_services(const struct yaml_context *c, const struct config *config)
{
        const struct yaml_node *list = find_value(yaml_root(c->document), "services");

        for (size_t i = 0; i < config->services_n; i++)
                for (size_t j = 0; j < i; j++)
                        if (strcmp(config->services[i].name, config->services[j].name) == 0)
                                return yaml_fail(
                                        c, find_value(list->items[i], "name"), "another service has this name already");
        return 0;
}

static int set_text(char **member, const char *text)
{
        if (*member)
                return 0;
        *member = strdup(text);
        return *member ? 0 : -ENOMEM;
}

static int set_default_texts(struct config *c)
{
        int r = set_text(&c->state_dir, "/var/lib/wbbroker");

        if (r == 0)
                r = set_text(&c->run_dir, "/run/wbbroker");
        if (r == 0)
                r = set_text(&c->audit_dir, "/var/log/wbbroker");
        if (r == 0)
                r = set_text(&c->inspect_upstream_ca, "/etc/ssl/certs/ca-certificates.crt");
        return r;
}

static const struct config defaults = {
        .audit_required = true,
        .audit_rotate_bytes = 64u << 20,
        .audit_sync = AUDIT_SYNC_BATCH,
        .dns_timeout_ms = 2000,
        .dns_cache_max_s = 300,
        .inspect_enabled = true,
        .request_head_ms = 10000,
        .client_hello_ms = 5000,
        .connect_ms = 10000,
        .idle_ms = 600000,
        .clock_check_s =
                300, /* a quartz of 50 ppm is 15 ms off by then, which the guest slews away within half a minute */
        .wall = {.recheck_s = 60},
};

DEFINE_CLEANUP(struct yaml_document *, yaml_document_free);
DEFINE_CLEANUP(struct config *, config_free);

int config_load(const char *file, const char *text, size_t n, struct config **ret, struct yaml_error *ret_error)
{
        _cleanup_(yaml_document_freep) struct yaml_document *document = NULL;
        _cleanup_(config_freep) struct config *config = malloc(sizeof(*config));
        struct yaml_context c = {.error = ret_error};
        int r;

        if (!config)
                return -ENOMEM;
        *config = defaults;
        r = yaml_parse(file, text, n, &document, ret_error);
        if (r != 0)
                return r;
        c.document = document;
        r = yaml_bind(&c, yaml_root(document), top_fields, COUNT(top_fields), config);
        if (r == 0)
                r = set_default_texts(config);
        if (r == 0)
                r = check_services(&c, config);
        if (r == 0)
                r = check_vms(&c, config);
        if (r == 0)
                *ret = STEAL(config);
        return r;
}

void config_free(struct config *c)
{
        if (!c)
                return;
        for (size_t i = 0; i < c->vms_n; i++) {
                free(c->vms[i].name);
                free(c->vms[i].path);
                free(c->vms[i].policy.text);
        }
        for (size_t i = 0; i < c->services_n; i++) {
                free(c->services[i].name);
                free(c->services[i].ports);
                free(c->services[i].connect);
        }
        for (size_t i = 0; i < c->floor_deny_names_n; i++)
                free(c->floor_deny_names[i]);
        for (size_t i = 0; i < c->wall.programs_n; i++)
                free(c->wall.programs[i].path);
        free(c->wall.programs);
        free(c->floor_deny_names);
        free(c->floor_deny);
        free(c->services);
        free(c->vms);
        free(c->dns_servers);
        free(c->state_dir);
        free(c->run_dir);
        free(c->user);
        free(c->audit_dir);
        free(c->inspect_upstream_ca);
        free(c);
}
