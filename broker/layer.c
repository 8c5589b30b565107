/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/layer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const char *const state_names[] = {
        [LAYER_ABSENT] = "absent",
        [LAYER_PRESENT] = "present",
        [LAYER_UNREADABLE] = "unreadable",
};
static_assert(COUNT(state_names) == LAYER_STATE_MAX_, "a state has no name");

/* Behind what stands already. Paths are the VMM's to choose, and facts go to terminals, logs and JSON: what is not
 * printable ASCII is shown as `?`. */
static void append(struct layer_finding *to, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));
static void append(struct layer_finding *to, const char *format, va_list ap)
{
        size_t n = strlen(to->fact);

        (void)vsnprintf(to->fact + n, sizeof(to->fact) - n, format, ap);
        for (char *p = to->fact + n; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
}

static void find(struct layer_finding *to, enum layer_state state, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static void find(struct layer_finding *to, enum layer_state state, const char *format, ...)
{
        va_list ap;

        to->state = state;
        to->fact[0] = '\0';
        va_start(ap, format);
        append(to, format, ap);
        va_end(ap);
}

/* Adds a note to a fact that stands. */
static void note(struct layer_finding *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct layer_finding *to, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        append(to, format, ap);
        va_end(ap);
}

static bool is_unreadable(struct layer_finding *to, int error, const char *what)
{
        if (error)
                find(to, LAYER_UNREADABLE, "%s cannot be read: %s", what, strerrordesc_np(error));
        return error != 0;
}

/* ---- the program */

/* What its file's name begins with; NULL: any. */
static const char *const programs[] = {
        [BACKEND_FIRECRACKER] = "firecracker",
        [BACKEND_CLOUD_HYPERVISOR] = "cloud-hypervisor",
        [BACKEND_QEMU] = "qemu-",
        [BACKEND_GVISOR] = "runsc",
        [BACKEND_RUNC] = NULL, /* the container's own first process */
        [BACKEND_OTHER] = NULL,
};
static_assert(COUNT(programs) == BACKEND_MAX_, "a backend has no row");

static bool is_allowed(const struct allowed_program *allowed, const struct evidence_program *program)
{
        if (allowed->path && strcmp(allowed->path, program->path) != 0)
                return false;
        return !allowed->has_sha256 ||
               (!program->digest_error && memcmp(allowed->sha256, program->sha256, sizeof(program->sha256)) == 0);
}

static bool is_listed(const struct layer_question *q, const struct evidence_program *program)
{
        for (size_t i = 0; i < q->programs_n; i++)
                if (is_allowed(&q->programs[i], program))
                        return true;
        return false;
}

static void note_digest(struct layer_finding *to, const struct evidence_program *program)
{
        if (program->digest_error) {
                note(to, ", its digest cannot be read: %s", strerrordesc_np(program->digest_error));
                return;
        }
        note(to, ", sha256 ");
        for (size_t i = 0; i < sizeof(program->sha256); i++)
                note(to, "%02x", program->sha256[i]);
}

static void find_program(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_program *program = &q->evidence->program;
        const char *want = programs[q->backend];

        if (is_unreadable(to, program->error, "its program"))
                return;
        find(to, LAYER_PRESENT, "%s", program->path);
        if (want && strncmp(evidence_program_name(q->evidence), want, strlen(want)) != 0) {
                find(to, LAYER_ABSENT, "the process runs another program: %s, not %s%s", program->path, want,
                        want[strlen(want) - 1] == '-' ? "*" : "");
        } else if (q->backend == BACKEND_GVISOR && !q->evidence->threads.is_gvisor_sandbox) {
                find(to, LAYER_ABSENT, "%s, but this process is no sandbox (runsc boot)", program->path);
        } else if (want && q->programs_n && !is_listed(q, program)) {
                find(to, LAYER_ABSENT, "%s is not one of isolation.programs", program->path);
        }
        note_digest(to, program);
}

static void find_kvm(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_kvm *kvm = &q->evidence->kvm;

        if (is_unreadable(to, kvm->error, "its descriptors"))
                return;
        if (!kvm->vms)
                find(to, LAYER_ABSENT, "the process holds no KVM VM");
        else if (!kvm->vcpus)
                find(to, LAYER_ABSENT, "the process holds a KVM VM without a vCPU");
        else
                find(to, LAYER_PRESENT, "holds %u KVM VM%s, %u vCPU%s", kvm->vms, kvm->vms == 1 ? "" : "s", kvm->vcpus,
                        kvm->vcpus == 1 ? "" : "s");
}

/* ---- credentials */

static const struct neighbour *find_same_uid(const struct layer_question *q, uint32_t uid, bool earlier)
{
        for (size_t i = 0; i < q->neighbours_n; i++) {
                const struct neighbour *n = &q->neighbours[i];

                if (n->earlier == earlier && !n->evidence->threads.error && n->evidence->threads.uids[1] == uid)
                        return n;
        }
        return NULL;
}

static void find_uid(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_threads *t = &q->evidence->threads;
        const struct neighbour *other;
        uint32_t uid = t->uids[1];
        bool root = false;

        if (is_unreadable(to, t->error, "its status"))
                return;
        for (size_t i = 0; i < COUNT(t->uids); i++)
                root = root || t->uids[i] == 0;
        other = find_same_uid(q, uid, true);
        if (root)
                find(to, LAYER_ABSENT, "uid %u, real %u, saved %u: root's privileges", uid, t->uids[0], t->uids[2]);
        else if (t->other_uids)
                find(to, LAYER_ABSENT, "uid %u, but %u of %u threads have another", uid, t->other_uids, t->n);
        else if (uid == q->broker_uid)
                find(to, LAYER_ABSENT, "uid %u is the broker's own", uid);
        else if (other)
                find(to, LAYER_ABSENT, "uid %u is shared with VM '%s'", uid, other->vm);
        else
                find(to, LAYER_PRESENT, "uid %u", uid);
        other = find_same_uid(q, uid, false);
        if (other)
                note(to, "; VM '%s', added later, shares it", other->vm);
}

static void find_seccomp(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_threads *t = &q->evidence->threads;

        if (is_unreadable(to, t->error, "its status"))
                return;
        if (t->filtered != t->n)
                find(to, LAYER_ABSENT, "%u of %u thread%s in mode 2", t->filtered, t->n, t->n == 1 ? "" : "s");
        else if (t->children_unfiltered)
                find(to, LAYER_ABSENT, "%u of %u processes below the sandbox are not in mode 2", t->children_unfiltered,
                        t->children);
        else
                find(to, LAYER_PRESENT, "mode 2, %u thread%s", t->n, t->n == 1 ? "" : "s");
        if (t->children && !t->children_unfiltered)
                note(to, ", %u process%s below", t->children, t->children == 1 ? "" : "es");
}

static void find_no_new_privs(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_threads *t = &q->evidence->threads;

        if (is_unreadable(to, t->error, "its status"))
                return;
        find(to, t->bound == t->n ? LAYER_PRESENT : LAYER_ABSENT, "set on %u of %u thread%s", t->bound, t->n,
                t->n == 1 ? "" : "s");
}

static void find_capabilities(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_threads *t = &q->evidence->threads;

        if (is_unreadable(to, t->error, "its status"))
                return;
        if (t->capabilities)
                find(to, LAYER_ABSENT, "has %016llx", (unsigned long long)t->capabilities);
        else
                find(to, LAYER_PRESENT, "none");
        if (t->capabilities && !q->evidence->namespaces[NAMESPACE_USER].error &&
                q->evidence->namespaces[NAMESPACE_USER].own)
                note(to, " in its own user namespace");
        note(to, ", bounding %016llx", (unsigned long long)t->bounding);
}

/* ---- what it sees */

static void note_unseen(struct layer_finding *to, const struct evidence_own *own)
{
        if (own->own && own->host_unseen)
                note(to, " (compared with the broker's alone: that of process 1 cannot be read)");
}

static void find_root(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence_own *root = &q->evidence->root;

        if (is_unreadable(to, root->error, "its root"))
                return;
        find(to, root->own ? LAYER_PRESENT : LAYER_ABSENT,
                root->own ? "its root is not the host's" : "the host's root");
        note_unseen(to, root);
}

static void find_namespace(const struct layer_question *q, enum evidence_namespace which, struct layer_finding *to)
{
        static const char *const names[] = {
                [NAMESPACE_NET] = "network",
                [NAMESPACE_MOUNT] = "mount",
                [NAMESPACE_PID] = "pid",
                [NAMESPACE_USER] = "user",
        };
        const struct evidence_own *ns = &q->evidence->namespaces[which];

        static_assert(COUNT(names) == NAMESPACE_MAX_, "a namespace has no name");
        if (is_unreadable(to, ns->error, "its namespace"))
                return;
        find(to, ns->own ? LAYER_PRESENT : LAYER_ABSENT, "%s %s namespace", ns->own ? "its own" : "the host's",
                names[which]);
        note_unseen(to, ns);
}

/* ---- what it can use up */

static void note_ceiling(struct layer_finding *to, enum evidence_ceiling which, uint64_t value)
{
        switch (which) {
        case CEILING_CPU:
                note(to, " cpu %llu.%03llu", (unsigned long long)value / 1000, (unsigned long long)value % 1000);
                break;
        case CEILING_MEMORY: note(to, " memory %llu bytes", (unsigned long long)value); break;
        case CEILING_PIDS: note(to, " pids %llu", (unsigned long long)value); break;
        case CEILING_IO: note(to, " io"); break;
        case CEILING_MAX_: break;
        }
}

static void find_cgroup(const struct layer_question *q, struct layer_finding *to)
{
        static const char *const names[] = {
                [CEILING_CPU] = "cpu",
                [CEILING_MEMORY] = "memory",
                [CEILING_PIDS] = "pids",
                [CEILING_IO] = "io",
        };
        const struct evidence_cgroup *cgroup = &q->evidence->cgroup;
        const char *between = "; no ceiling on";

        static_assert(COUNT(names) == CEILING_MAX_, "a ceiling has no name");
        if (is_unreadable(to, cgroup->error, "its cgroup"))
                return;
        find(to, LAYER_PRESENT, "%s:", cgroup->path);
        for (int i = 0; i < CEILING_MAX_; i++)
                if (cgroup->ceilings[i])
                        note_ceiling(to, (enum evidence_ceiling)i, cgroup->ceilings[i]);
        for (int i = 0; i < CEILING_MAX_; i++) {
                if (cgroup->ceilings[i])
                        continue;
                if (to->state == LAYER_PRESENT)
                        to->state = LAYER_UNREADABLE;
                if (!cgroup->ceiling_errors[i])
                        to->state = LAYER_ABSENT;
                note(to, "%s %s%s", between, names[i], cgroup->ceiling_errors[i] ? " (unreadable)" : "");
                between = ",";
        }
}

static void find_memory(const struct layer_question *q, struct layer_finding *to)
{
        const struct evidence *e = q->evidence;

        if (is_unreadable(to, e->memory.error, "its mappings"))
                return;
        find(to, LAYER_PRESENT, "none shared with another VM");
        for (size_t i = 0; i < q->neighbours_n; i++) {
                const struct neighbour *n = &q->neighbours[i];
                const struct evidence_mapping *m;

                if (n->evidence->pid == e->pid && n->earlier) {
                        find(to, LAYER_ABSENT, "the same process as VM '%s'", n->vm);
                        return;
                }
                m = n->evidence->memory.error || n->evidence->pid == e->pid ? NULL
                                                                            : evidence_find_shared(e, n->evidence);
                if (m) {
                        find(to, LAYER_ABSENT, "shared with VM '%s': device %llx, inode %llu", n->vm,
                                (unsigned long long)m->device, (unsigned long long)m->inode);
                        return;
                }
        }
}

static void find_netns(const struct layer_question *q, struct layer_finding *to)
{
        find_namespace(q, NAMESPACE_NET, to);
}

static void find_mntns(const struct layer_question *q, struct layer_finding *to)
{
        find_namespace(q, NAMESPACE_MOUNT, to);
}

static void find_pidns(const struct layer_question *q, struct layer_finding *to)
{
        find_namespace(q, NAMESPACE_PID, to);
}

static void find_userns(const struct layer_question *q, struct layer_finding *to)
{
        find_namespace(q, NAMESPACE_USER, to);
}

/* ---- all of them */

static const struct {
        const char *name;
        void (*find)(const struct layer_question *q, struct layer_finding *to);
} table[] = {
        [LAYER_PROGRAM] = {"program", find_program},
        [LAYER_KVM] = {"kvm", find_kvm},
        [LAYER_UID] = {"uid", find_uid},
        [LAYER_SECCOMP] = {"seccomp", find_seccomp},
        [LAYER_NO_NEW_PRIVS] = {"no_new_privs", find_no_new_privs},
        [LAYER_CAPABILITIES] = {"capabilities", find_capabilities},
        [LAYER_CHROOT] = {"chroot", find_root},
        [LAYER_NETNS] = {"netns", find_netns},
        [LAYER_MNTNS] = {"mntns", find_mntns},
        [LAYER_PIDNS] = {"pidns", find_pidns},
        [LAYER_USERNS] = {"userns", find_userns},
        [LAYER_CGROUP] = {"cgroup", find_cgroup},
        [LAYER_MEMORY] = {"memory", find_memory},
};
static_assert(COUNT(table) == LAYER_MAX_, "a layer has no row");

void layers_find(const struct layer_question *q, struct layers *ret)
{
        if (!q->evidence->exists) {
                layers_without_evidence("no such process", ret);
                return;
        }
        for (int i = 0; i < LAYER_MAX_; i++)
                table[i].find(q, &ret->of[i]);
}

void layers_without_evidence(const char *fact, struct layers *ret)
{
        for (int i = 0; i < LAYER_MAX_; i++)
                find(&ret->of[i], LAYER_UNREADABLE, "%s", fact);
}

layer_set layers_in(const struct layers *layers, enum layer_state state)
{
        layer_set set = 0;

        for (int i = 0; i < LAYER_MAX_; i++)
                if (layers->of[i].state == state)
                        set |= LAYER_BIT(i);
        return set;
}

const char *layer_name(enum layer layer)
{
        assert(layer < LAYER_MAX_);
        return table[layer].name;
}

const char *layer_state_name(enum layer_state state)
{
        assert(state < LAYER_STATE_MAX_);
        return state_names[state];
}

void layer_set_print(layer_set set, char *ret_text, size_t room)
{
        size_t n = (size_t)snprintf(ret_text, room, "%s", set ? "" : "none");

        for (int i = 0; i < LAYER_MAX_ && n < room; i++)
                if (set & LAYER_BIT(i))
                        n += (size_t)snprintf(ret_text + n, room - n, "%s%s", n ? ", " : "", table[i].name);
}
