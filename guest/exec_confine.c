/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/exec_start.h"
#include "guest/names.h"
#include "guest/secret.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

/* ---- secrets */

/* The value in an anonymous file that nobody can change any more. */
static int make_sealed(const char *name, const uint8_t *value, size_t n, int *ret_fd)
{
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        int r;

        if (fd < 0)
                return -errno;
        r = n ? io_write_full(fd, value, n) : 0;
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0 || fchmod(fd, 0444) < 0 ||
                fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* NAME_FILE=path */
static int set_file_name(struct start *s, const char *name, const char *path)
{
        char variable[WB_SECRET_NAME_MAX + sizeof("_FILE")];

        (void)snprintf(variable, sizeof(variable), "%s_FILE", name);
        return environment_set(&s->env, variable, path, strlen(path));
}

/* A sealed file that the command inherits. */
static int hand_down(struct start *s, const Wb__SecretUse *use, const uint8_t *value, size_t n)
{
        char path[sizeof("/proc/self/fd/") + 20];
        int fd = -1, r = make_sealed(use->name, value, n, &fd);

        if (r < 0)
                return r;
        s->secret_fds[s->secrets_n++] = fd;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%zu", 2 + s->secrets_n);
        return set_file_name(s, use->name, path);
}

static int put_in_mount(struct start *s, const Wb__SecretUse *use, const uint8_t *value, size_t n)
{
        char path[sizeof(SECRET_MOUNT_DIRECTORY) + WB_SECRET_NAME_MAX + 1];

        for (size_t i = 0; i < s->files_n; i++)
                if (strcmp(s->files[i].name, use->name) == 0)
                        return start_refuse(s, "bad_request", "%s is to be mounted twice", use->name);
        s->files[s->files_n++] = (struct secret_file){.name = use->name, .value = value, .value_n = n};
        (void)snprintf(path, sizeof(path), "%s/%s", SECRET_MOUNT_DIRECTORY, use->name);
        return set_file_name(s, use->name, path);
}

static int take_secret(struct start *s, const Wb__SecretUse *use)
{
        const uint8_t *value;
        size_t n;
        int r = secret_get(s->table->agent->secrets, use->name, clock_monotonic_ns(), &value, &n);

        if (r == SECRET_E_UNKNOWN)
                return start_refuse(s, "secret_unknown", "%s", use->name);
        if (r == SECRET_E_EXPIRED)
                return start_refuse(s, "secret_expired", "%s", use->name);
        if (strchr(use->name, '/') || use->name[0] == '.')
                return start_refuse(s, "bad_request", "%s: not a name for a file", use->name);
        if (use->form == WB__SECRET_USE__FORM__FD)
                return hand_down(s, use, value, n);
        if (use->form == WB__SECRET_USE__FORM__MOUNT)
                return put_in_mount(s, use, value, n);
        if (n && memchr(value, 0, n))
                return start_refuse(s, "bad_request", "%s holds a NUL byte and cannot be a variable", use->name);
        return environment_set(&s->env, use->name, n ? (const char *)value : "", n);
}

/* Where the mount of the exec's own namespace goes; others see an empty directory. */
static int make_mount_point(void)
{
        const char *const paths[] = {"/run/wbagent", SECRET_MOUNT_DIRECTORY};

        for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
                if (mkdir(paths[i], 0755) == 0)
                        (void)chmod(paths[i], 0755); /* whatever the umask */
                else if (errno != EEXIST)
                        return -errno;
        return 0;
}

static int make_mount(struct start *s)
{
        int r = make_mount_point();

        if (r == 0)
                r = secret_mount_new(s->files, s->files_n, s->who.uid, s->who.gid, &s->secrets_fd);
        return r < 0 ? start_refuse(s, "internal", "mount of secrets: %s%s", strerror(-r),
                               r == -ENOSYS ? " (it needs Linux 5.2)" : "")
                     : 0;
}

int start_take_secrets(struct start *s)
{
        int r = 0;

        if (s->m->n_secrets > WB_SECRETS_MAX)
                return start_refuse(s, "bad_request", "more than %u secrets", WB_SECRETS_MAX);
        for (size_t i = 0; r == 0 && i < s->m->n_secrets; i++)
                r = take_secret(s, s->m->secrets[i]);
        return r == 0 && s->files_n ? make_mount(s) : r;
}

/* ---- limits */

int start_take_rlimits(struct start *s)
{
        const struct rlimit *nofile = &s->table->agent->inherited_nofile;

        /* What the agent raised for itself goes back to what it was given. */
        if (nofile->rlim_max)
                s->rlimits[s->rlimits_n++] = (struct spawn_rlimit){RLIMIT_NOFILE, *nofile};
        if (s->m->n_rlimits > RLIM_NLIMITS)
                return start_refuse(s, "bad_request", "more than %d rlimits", (int)RLIM_NLIMITS);
        for (size_t i = 0; i < s->m->n_rlimits; i++) {
                const Wb__Rlimit *asked = s->m->rlimits[i];
                int number = rlimit_number(asked->name);

                if (number < 0)
                        return start_refuse(
                                s, "limit_unavailable", "rlimit %.400s: there is none of this name", asked->name);
                s->rlimits[s->rlimits_n++] = (struct spawn_rlimit){number, {asked->soft, asked->hard}};
        }
        return 0;
}

int start_take_caps(struct start *s)
{
        s->spec.caps_set = s->m->caps_set;
        for (size_t i = 0; i < s->m->n_caps; i++) {
                int number = capability_number(s->m->caps[i]);

                if (number < 0 || !(s->table->caps >> number & 1))
                        return start_refuse(s, "limit_unavailable", "capability %.400s: %s", s->m->caps[i],
                                number < 0 ? "there is none of this name" : "the agent has not got it");
                s->spec.caps |= UINT64_C(1) << number;
        }
        return 0;
}

/* What the command will hold: a root all, unless it is bounded; another user nothing, unless it is given. */
static uint64_t held_caps(const struct start *s)
{
        if (s->m->caps_set)
                return s->spec.caps;
        return s->who.uid == 0 ? s->table->caps : 0;
}

static int take_custom_filter(struct start *s)
{
        ProtobufCBinaryData program = s->m->seccomp_program;

        if (program.len == 0 || program.len % sizeof(*s->custom_filter))
                return start_refuse(s, "bad_request", "seccomp: this is no program");
        s->custom_filter = malloc(program.len); /* aligned, as the message is not */
        if (!s->custom_filter)
                return -ENOMEM;
        memcpy(s->custom_filter, program.data, program.len);
        s->spec.filter = s->custom_filter;
        s->spec.filter_n = program.len / sizeof(*s->custom_filter);
        return 0;
}

int start_take_seccomp(struct start *s)
{
        uint64_t held = held_caps(s);

        s->spec.filter_asked = s->m->seccomp != WB__SECCOMP_PROFILE__SECCOMP_UNASKED;
        if (s->m->seccomp == WB__SECCOMP_PROFILE__SECCOMP_CUSTOM)
                return take_custom_filter(s);
        if (s->m->seccomp == WB__SECCOMP_PROFILE__SECCOMP_OFF || !seccomp_profile_refuses(held))
                return 0;
        s->profile = malloc(sizeof(*s->profile));
        if (!s->profile)
                return -ENOMEM;
        seccomp_profile_build(held, s->profile);
        s->spec.filter = s->profile->at;
        s->spec.filter_n = s->profile->n;
        return 0;
}

int start_take_cgroup(struct start *s)
{
        const Wb__ExecLimits *asked = s->m->limits;
        struct cgroup_limits limits = {0};
        struct cgroup_tree *tree = s->table->cgroups;
        const char *which = NULL;
        int r;

        if (asked)
                limits = (struct cgroup_limits){asked->memory_bytes, asked->pids, asked->cpu_percent, asked->io_bps};
        which = cgroup_missing(tree, &limits);
        if (which)
                return start_refuse(s, "limit_unavailable", EXEC_NO_CONTROLLER, which);
        if (!tree)
                return 0;
        r = cgroup_make(tree, s->exec->id, &limits, &s->cgroup_fd, &which);
        if (r == CGROUP_E_REFUSED)
                return start_refuse(s, "limit_unavailable", EXEC_VALUE_REFUSED, which);
        if (r < 0)
                return start_refuse(s, "internal", "cgroup: %s", strerror(-r));
        s->exec->has_cgroup = true;
        s->exec->limits = limits;
        return 0;
}
