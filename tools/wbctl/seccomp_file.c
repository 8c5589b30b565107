/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/seccomp_file.h"

#include <errno.h>
#include <inttypes.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"

#define FILE_MAX_BYTES (1024u * 1024u)
#define ARGUMENTS_MAX  6

struct profile {
        const char *path;
        scmp_filter_ctx ctx;
        uint32_t default_action;
};

static void free_json(json_t **j)
{
        json_decref(*j);
}

static void release(scmp_filter_ctx *ctx)
{
        if (*ctx)
                seccomp_release(*ctx);
}

__attribute__((format(printf, 2, 3))) static int wrong(const struct profile *p, const char *format, ...)
{
        va_list ap;

        fprintf(stderr, "wbctl: %s: ", p->path);
        va_start(ap, format);
        (void)vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        return EXIT_USAGE;
}

/* ---- words */

static const struct {
        const char *name;
        uint32_t action;
        bool has_errno;
} actions[] = {
        {"SCMP_ACT_ALLOW", SCMP_ACT_ALLOW, false},
        {"SCMP_ACT_LOG", SCMP_ACT_LOG, false},
        {"SCMP_ACT_ERRNO", SCMP_ACT_ERRNO(0), true},
        {"SCMP_ACT_TRAP", SCMP_ACT_TRAP, false},
        {"SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD, false},
        {"SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD, false},
        {"SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS, false},
};

static int parse_action(const struct profile *p, const char *name, json_int_t error, uint32_t *ret)
{
        for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
                if (strcmp(name, actions[i].name) != 0)
                        continue;
                if (error < 0 || error > 4095)
                        return wrong(p, "an errno of %" JSON_INTEGER_FORMAT, error);
                *ret = actions[i].has_errno ? SCMP_ACT_ERRNO((uint32_t)error) : actions[i].action;
                return 0;
        }
        return wrong(p, "action '%s' is not to be had here", name);
}

static const struct {
        const char *name;
        enum scmp_compare op;
} comparisons[] = {
        {"SCMP_CMP_NE", SCMP_CMP_NE},
        {"SCMP_CMP_LT", SCMP_CMP_LT},
        {"SCMP_CMP_LE", SCMP_CMP_LE},
        {"SCMP_CMP_EQ", SCMP_CMP_EQ},
        {"SCMP_CMP_GE", SCMP_CMP_GE},
        {"SCMP_CMP_GT", SCMP_CMP_GT},
        {"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ},
};

/* "SCMP_ARCH_X86_64" is libseccomp's "x86_64". */
static int add_architecture(const struct profile *p, const char *name)
{
        char lower[32];
        size_t n = strlen(name);
        uint32_t arch;
        int r;

        if (strncmp(name, "SCMP_ARCH_", 10) != 0 || n - 10 >= sizeof(lower))
                return wrong(p, "architecture '%s' is unknown", name);
        for (size_t i = 10; i <= n; i++)
                lower[i - 10] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
        arch = seccomp_arch_resolve_name(lower);
        if (!arch)
                return wrong(p, "architecture '%s' is unknown", name);
        r = seccomp_arch_add(p->ctx, arch);
        return r < 0 && r != -EEXIST ? wrong(p, "%s: %s", name, strerrordesc_np(-r)) : 0;
}

/* ---- rules */

static int parse_arguments(
        const struct profile *p, json_t *list, struct scmp_arg_cmp ret[ARGUMENTS_MAX], unsigned *ret_n)
{
        json_t *item;
        size_t i;

        if (json_array_size(list) > ARGUMENTS_MAX)
                return wrong(p, "a system call has six arguments");
        json_array_foreach (list, i, item) {
                json_int_t index, value, second = 0;
                const char *op;
                size_t at;

                if (json_unpack(item, "{s:I, s:I, s?I, s:s !}", "index", &index, "value", &value, "valueTwo", &second,
                            "op", &op) < 0 ||
                        index < 0 || index >= ARGUMENTS_MAX)
                        return wrong(p, "an argument wants index (0 to 5), value, op, and may have valueTwo");
                for (at = 0; at < sizeof(comparisons) / sizeof(comparisons[0]); at++)
                        if (strcmp(op, comparisons[at].name) == 0)
                                break;
                if (at == sizeof(comparisons) / sizeof(comparisons[0]))
                        return wrong(p, "comparison '%s' is unknown", op);
                ret[i] = SCMP_CMP64((unsigned)index, comparisons[at].op, (scmp_datum_t)value, (scmp_datum_t)second);
        }
        *ret_n = (unsigned)json_array_size(list);
        return 0;
}

/* A call that this libseccomp has not heard of stays with the default, which must not be to let it pass. */
static int add_rule(
        const struct profile *p, const char *name, uint32_t action, const struct scmp_arg_cmp *arguments, unsigned n)
{
        int number = seccomp_syscall_resolve_name(name), r;

        if (number == __NR_SCMP_ERROR) {
                if (p->default_action != SCMP_ACT_ALLOW && p->default_action != SCMP_ACT_LOG)
                        return 0;
                return wrong(p, "system call '%s' is unknown here, and the default would let it pass", name);
        }
        if (action == p->default_action)
                return 0;
        r = seccomp_rule_add_array(p->ctx, action, number, n, arguments);
        return r < 0 ? wrong(p, "%s: %s", name, strerrordesc_np(-r)) : 0;
}

static int add_rules(const struct profile *p, json_t *item)
{
        struct scmp_arg_cmp arguments[ARGUMENTS_MAX];
        json_t *names, *list = NULL, *name;
        json_int_t error = EPERM;
        const char *action_name;
        json_error_t fault;
        uint32_t action;
        unsigned n = 0;
        size_t i;
        int r;

        if (json_unpack_ex(item, &fault, JSON_STRICT, "{s:o, s:s, s?I, s?o}", "names", &names, "action", &action_name,
                    "errnoRet", &error, "args", &list) < 0)
                return wrong(p, "in syscalls: %s", fault.text);
        r = parse_action(p, action_name, error, &action);
        if (r == 0 && list)
                r = parse_arguments(p, list, arguments, &n);
        json_array_foreach (names, i, name) {
                if (r == 0 && !json_is_string(name))
                        r = wrong(p, "a system call's name is a text");
                if (r == 0)
                        r = add_rule(p, json_string_value(name), action, arguments, n);
        }
        return r;
}

static int load(struct profile *p, json_t *root)
{
        json_t *architectures = NULL, *syscalls = NULL, *item;
        json_int_t error = EPERM;
        const char *action_name;
        json_error_t fault;
        size_t i;
        int r;

        if (json_unpack_ex(root, &fault, JSON_STRICT, "{s:s, s?I, s?o, s?o}", "defaultAction", &action_name,
                    "defaultErrnoRet", &error, "architectures", &architectures, "syscalls", &syscalls) < 0)
                return wrong(p, "%s (wanted is the profile of an OCI runtime's configuration)", fault.text);
        r = parse_action(p, action_name, error, &p->default_action);
        if (r != 0)
                return r;
        p->ctx = seccomp_init(p->default_action);
        if (!p->ctx)
                return EXIT_FAILED;
        (void)seccomp_attr_set(p->ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree: long profiles cost little */
        (void)seccomp_attr_set(p->ctx, SCMP_FLTATR_CTL_NNP, 0);
        json_array_foreach (architectures, i, item)
                if (r == 0)
                        r = add_architecture(p, json_is_string(item) ? json_string_value(item) : "");
        json_array_foreach (syscalls, i, item)
                if (r == 0)
                        r = add_rules(p, item);
        return r;
}

/* ---- the program */

static int export(const struct profile *p, uint8_t **ret_program, size_t *ret_n)
{
        _cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
        char *bytes;
        int r;

        if (fd < 0)
                return EXIT_FAILED;
        r = seccomp_export_bpf(p->ctx, fd);
        if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
                r = -errno;
        if (r == 0)
                r = io_read_fd(fd, WB_SECCOMP_MAX_BYTES, &bytes, ret_n);
        if (r < 0)
                return wrong(p, "no program can be made of it: %s", strerrordesc_np(-r));
        *ret_program = (uint8_t *)bytes;
        return 0;
}

int seccomp_file_compile(const char *path, uint8_t **ret_program, size_t *ret_n)
{
        _cleanup_(release) scmp_filter_ctx ctx = NULL;
        _cleanup_(free_json) json_t *root = NULL;
        _cleanup_free_ char *text = NULL;
        struct profile p = {.path = path};
        json_error_t fault;
        size_t n;
        int r = io_read_file(path, FILE_MAX_BYTES, &text, &n);

        if (r < 0)
                return wrong(&p, "%s", strerrordesc_np(-r));
        root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &fault);
        if (!root)
                return wrong(&p, "%d:%d: %s", fault.line, fault.column, fault.text);
        r = load(&p, root);
        ctx = p.ctx; /* NOLINT(clang-analyzer-deadcode.DeadStores): released at the end of the scope */
        return r == 0 ? export(&p, ret_program, ret_n) : r;
}
