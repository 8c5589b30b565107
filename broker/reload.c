/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/reload.h"

#include <errno.h>
#include <string.h>

#include "broker/interception.h"
#include "broker/proof.h"
#include "broker/settings.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"

void loaded_done(struct loaded *l)
{
        setup_free(l->setup);
        worker_settings_unref(l->settings);
        *l = (struct loaded){0};
}

void reload_add_vms(struct loaded *l, struct registry *r)
{
        const struct config *c = l->setup->config;

        for (size_t i = 0; i < c->vms_n; i++) {
                struct refusal refusal = {0};

                if (registry_find(r, c->vms[i].name))
                        continue;
                /* One that is refused is logged there, and the others go on. */
                (void)registry_add(r, &c->vms[i], l->setup->policies[i], true, &refusal);
        }
}

static const struct config_vm *find_vm(const struct config *c, const char *name, size_t *ret_index)
{
        for (size_t i = 0; i < c->vms_n; i++)
                if (strcmp(c->vms[i].name, name) == 0) {
                        *ret_index = i;
                        return &c->vms[i];
                }
        return NULL;
}

static bool same_vm(const struct config_vm *a, const struct config_vm *b)
{
        return a->backend == b->backend && a->transport == b->transport && a->cid == b->cid && a->pid == b->pid &&
               a->agent == b->agent && (a->path == b->path || (a->path && b->path && strcmp(a->path, b->path) == 0));
}

/* A VM that was added at run time stays, so the file must not want what is its. */
static int check_clashes(const struct registry *r, const struct config *c)
{
        const struct vm_entry *e;

        TAILQ_FOREACH (e, &r->vms, link) {
                if (e->from_file)
                        continue;
                for (size_t i = 0; i < c->vms_n; i++) {
                        const char *shared = config_vm_clash(&e->config, &c->vms[i]);

                        if (shared) {
                                log_error("VM '%s' of the configuration: VM '%s', added at run time, has this %s",
                                        c->vms[i].name, e->config.name, shared);
                                return -EEXIST;
                        }
                }
        }
        return 0;
}

static int set_settings(struct loaded *l, struct registry *r, struct worker_settings *settings)
{
        for (size_t i = 0; i < r->workers_n; i++) {
                int error = worker_set_settings(r->workers[i], settings);

                if (error < 0) {
                        /* Those before it get the old ones back. */
                        while (i--)
                                (void)worker_set_settings(r->workers[i], l->settings);
                        worker_settings_unref(settings);
                        return error;
                }
        }
        worker_settings_unref(l->settings);
        l->settings = settings;
        return 0;
}

int reload_settings(struct loaded *l, struct registry *r)
{
        struct worker_settings *settings;
        int error = settings_make(l->setup, NULL, &settings);

        return error < 0 ? error : set_settings(l, r, settings);
}

static void set_policy(struct registry *r, struct vm_entry *e, struct policy *policy)
{
        struct refusal refusal = {0};

        if (memcmp(e->policy->sha256, policy->sha256, sizeof(policy->sha256)) == 0)
                return;
        if (registry_set_policy(r, e, policy, &refusal) < 0) {
                log_error("VM '%s': %s", e->config.name, refusal.message);
                registry_remove(r, e, "its new policy cannot be put in force");
        }
}

/* What the file does not name any more goes, and what it names otherwise. */
static void update_vms(struct loaded *l, struct registry *r)
{
        const struct config *c = l->setup->config;
        struct vm_entry *e, *next;
        size_t i;

        for (e = TAILQ_FIRST(&r->vms); e; e = next) {
                const struct config_vm *vm = find_vm(c, e->config.name, &i);

                next = TAILQ_NEXT(e, link);
                if (!e->from_file)
                        continue;
                if (!vm)
                        registry_remove(r, e, "not in the configuration any more");
                else if (!same_vm(&e->config, vm))
                        registry_remove(r, e, "changed in the configuration");
                else
                        set_policy(r, e, l->setup->policies[i]);
        }
}

static int load_next(const struct registry *r, const struct setup *before, int memfd, struct setup **ret_setup,
        struct worker_settings **ret_settings)
{
        struct yaml_error error = {0};
        struct file_set *files = NULL;
        struct setup *setup = NULL;
        int e = file_set_unpack(memfd, &files);

        if (e == 0)
                e = setup_load(files, &setup, &error);
        if (e == YAML_E_INVALID) {
                yaml_error_print(&error);
                e = -EINVAL;
        }
        if (e == 0)
                e = check_clashes(r, setup->config);
        if (e == 0)
                setup_check_trust(setup, before);
        if (e == 0)
                e = settings_make(setup, before, ret_settings);
        file_set_free(files);
        yaml_error_done(&error);
        if (e < 0)
                setup_free(setup);
        else
                *ret_setup = setup;
        return e;
}

/*
 * Tighten before loosening: while the VMs get their policies the floor is the old and the new one together, since what
 * one of them denies the policies of its time need not. VMs that are new come last.
 */
int reload_apply(struct loaded *l, struct registry *r, int memfd)
{
        struct worker_settings *settings = NULL;
        struct setup *setup = NULL;
        int error = load_next(r, l->setup, memfd, &setup, &settings);

        if (error < 0)
                return error;
        error = set_settings(l, r, settings);
        if (error < 0) {
                setup_free(setup);
                return error;
        }
        setup_free(l->setup);
        l->setup = setup;
        audit_set_options(r->audit, &(struct audit_options){.rotate_bytes = setup->config->audit_rotate_bytes,
                                            .sync = (enum audit_sync)setup->config->audit_sync,
                                            .required = setup->config->audit_required});
        r->rules = &setup->config->wall;
        r->clock_check_s = setup->config->clock_check_s;
        interception_configure(r, setup);
        update_vms(l, r);
        if (reload_settings(l, r) < 0)
                log_error("what the floor no longer has stays in it until the next reload");
        reload_add_vms(l, r);
        proof_all_again(r);
        return 0;
}
