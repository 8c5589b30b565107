/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/seccomp_file.h"
#include "tools/wbctl/session.h"
#include "tools/wbctl/target.h"

#define NICE_LEAST (-20)
#define NICE_MOST  19

struct exec_options {
        struct target_options target;
        uint64_t connect_ms;
        bool terminal;
        bool detach;
        const char *result;
        const char *user;
        const char *cwd;
        struct option_strings env;
        uint64_t timeout_ms;
        uint64_t memory_bytes;
        uint64_t pids;
        uint64_t cpu_percent;
        uint64_t io_bps;
        const char *umask;
        struct option_strings rlimits;
        const char *nice;
        bool no_new_privs;
        const char *caps;
        const char *seccomp;
        struct option_strings secrets;
};

#define NOT_GIVEN UINT64_MAX

#define MEMBER(name) offsetof(struct exec_options, name)

static const struct option_spec specs[] = {
        TARGET_SPECS(struct exec_options, target),
        {"connect-timeout", 0, OPTION_DURATION_MS, MEMBER(connect_ms), "DURATION",
                "how long the guest may take to answer (5s)"},
        {"tty", 't', OPTION_FLAG, MEMBER(terminal), NULL, "give the command a terminal"},
        {"detach", 'd', OPTION_FLAG, MEMBER(detach), NULL, "print the exec's id and leave it running"},
        {"result", 0, OPTION_STRING, MEMBER(result), "FILE", "write how it ended, as JSON"},
        {"user", 'u', OPTION_STRING, MEMBER(user), "U[:G][,G...]", "names or numbers of the guest (root)"},
        {"cwd", 'C', OPTION_STRING, MEMBER(cwd), "DIR", "the working directory (the user's home)"},
        {"env", 'e', OPTION_STRINGS, MEMBER(env), "NAME=VALUE", "a variable (repeatable)"},
        {"timeout", 0, OPTION_DURATION_MS, MEMBER(timeout_ms), "DURATION", "then all of it is killed: status 124"},
        {"memory", 0, OPTION_SIZE, MEMBER(memory_bytes), "SIZE", "memory of the whole tree"},
        {"pids", 0, OPTION_U64, MEMBER(pids), "N", "processes of the whole tree"},
        {"cpu", 0, OPTION_U64, MEMBER(cpu_percent), "PERCENT", "of one core"},
        {"io", 0, OPTION_SIZE, MEMBER(io_bps), "SIZE", "a second, read and written each, of each disk"},
        {"umask", 0, OPTION_STRING, MEMBER(umask), "OCTAL", "the file mode creation mask (022)"},
        {"rlimit", 0, OPTION_STRINGS, MEMBER(rlimits), "NAME=SOFT[:HARD]",
                "as in getrlimit(2), lower case; a number or unlimited"},
        {"nice", 0, OPTION_STRING, MEMBER(nice), "N", "-20 to 19 (0)"},
        {"no-new-privs", 0, OPTION_FLAG, MEMBER(no_new_privs), NULL, "no setuid program gains anything"},
        {"caps", 0, OPTION_STRING, MEMBER(caps), "none|NAME[,NAME...]",
                "the bounding set; what another user than root holds"},
        {"seccomp", 0, OPTION_STRING, MEMBER(seccomp), "default|off|FILE",
                "system calls: those of its capabilities (default), all, or an OCI profile"},
        {"secret", 0, OPTION_STRINGS, MEMBER(secrets), "NAME[:fd|mount|env]",
                "a secret of the activation (repeatable)"},
};

static const struct option_table table = {
        .usage = "wbctl exec " TARGET_USAGE " [OPTION]... -- COMMAND [ARGUMENT]...",
        .summary = "Runs a command in a guest: its input, output, signals and status are ours.",
        .example = "wbctl exec --vm demo --timeout 30s --memory 256M -- make test",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
};

/* The message, and what it points to beside argv. */
struct request {
        Wb__ExecStart start;
        Wb__ExecLimits limits;
        ProtobufCBinaryData *texts; /* argv, then env */
        Wb__Rlimit *rlimits;
        Wb__Rlimit **rlimit_pointers;
        Wb__SecretUse *secrets;
        Wb__SecretUse **secret_pointers;
        char **caps;
        char *caps_text;
        uint8_t *seccomp;
        char *term;
};

static void request_done(struct request *q)
{
        for (size_t i = 0; i < q->start.n_rlimits; i++)
                free(q->rlimits[i].name);
        for (size_t i = 0; i < q->start.n_secrets; i++)
                free(q->secrets[i].name);
        free(q->texts);
        free(q->rlimits);
        free(q->rlimit_pointers);
        free(q->secrets);
        free(q->secret_pointers);
        free(q->caps);
        free(q->caps_text);
        free(q->seccomp);
        free(q->term);
}

static ProtobufCBinaryData bytes_of(const char *text)
{
        return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

static bool names_variable(const struct option_strings *env, const char *name)
{
        size_t n = strlen(name);

        for (size_t i = 0; i < env->n; i++)
                if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
                        return true;
        return false;
}

/* argv and env; with a terminal also the kind of ours, unless one is given. */
static int take_texts(const struct exec_options *o, char *const *argv, size_t argv_n, struct request *q)
{
        const char *term = getenv("TERM");
        size_t n = 0;

        q->texts = calloc(argv_n + o->env.n + 1, sizeof(*q->texts));
        if (!q->texts)
                return -ENOMEM;
        q->start.argv = q->texts;
        q->start.n_argv = argv_n;
        for (size_t i = 0; i < argv_n; i++)
                q->texts[n++] = bytes_of(argv[i]);
        q->start.env = q->texts + n;
        for (size_t i = 0; i < o->env.n; i++) {
                if (!strchr(o->env.items[i], '=') || o->env.items[i][0] == '=')
                        return options_usage_error(&table, "--env wants NAME=VALUE, not '%s'", o->env.items[i]);
                q->texts[n++] = bytes_of(o->env.items[i]);
        }
        if (o->terminal && term && *term && !names_variable(&o->env, "TERM")) {
                if (asprintf(&q->term, "TERM=%s", term) < 0)
                        return -ENOMEM;
                q->texts[n++] = bytes_of(q->term);
        }
        q->start.n_env = n - argv_n;
        return 0;
}

static int parse_rlimit_value(const char *text, uint64_t *ret)
{
        if (strcmp(text, "unlimited") == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        return parse_u64(text, UINT64_MAX, ret);
}

/* NAME=SOFT[:HARD]; a hard limit that is not given is the soft one. ret->name is the caller's to free in any case. */
static int parse_rlimit(const char *text, Wb__Rlimit *ret)
{
        const char *equals = strchr(text, '=');
        char *value, *colon;
        int r;

        wb__rlimit__init(ret);
        ret->name = NULL; /* not the constant that protobuf-c has for none */
        if (!equals || equals == text)
                return -EINVAL;
        ret->name = strndup(text, (size_t)(equals - text));
        value = strdup(equals + 1);
        if (!ret->name || !value) {
                free(value);
                return -ENOMEM;
        }
        colon = strchr(value, ':');
        if (colon)
                *colon = '\0';
        r = parse_rlimit_value(value, &ret->soft);
        ret->hard = ret->soft;
        if (r == 0 && colon)
                r = parse_rlimit_value(colon + 1, &ret->hard);
        if (r == 0 && ret->soft > ret->hard)
                r = -EINVAL;
        free(value);
        return r;
}

static int take_rlimits(const struct exec_options *o, struct request *q)
{
        q->rlimits = calloc(o->rlimits.n + 1, sizeof(*q->rlimits));
        q->rlimit_pointers = calloc(o->rlimits.n + 1, sizeof(void *));
        if (!q->rlimits || !q->rlimit_pointers)
                return -ENOMEM;
        q->start.rlimits = q->rlimit_pointers;
        for (size_t i = 0; i < o->rlimits.n; i++) {
                int r = parse_rlimit(o->rlimits.items[i], &q->rlimits[i]);

                q->rlimit_pointers[i] = &q->rlimits[i];
                q->start.n_rlimits = i + 1;
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        return options_usage_error(
                                &table, "--rlimit wants NAME=SOFT[:HARD], not '%s'", o->rlimits.items[i]);
        }
        return 0;
}

static const struct {
        const char *suffix;
        Wb__SecretUse__Form form;
} forms[] = {
        {":fd", WB__SECRET_USE__FORM__FD},
        {":mount", WB__SECRET_USE__FORM__MOUNT},
        {":env", WB__SECRET_USE__FORM__ENV},
};

static int parse_secret(const char *text, Wb__SecretUse *ret)
{
        size_t n = strcspn(text, ":");

        wb__secret_use__init(ret);
        ret->form = text[n] ? WB__SECRET_USE__FORM__ENV + 1 : WB__SECRET_USE__FORM__FD;
        for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
                if (strcmp(text + n, forms[i].suffix) == 0)
                        ret->form = forms[i].form;
        ret->name = strndup(text, n);
        if (!ret->name)
                return -ENOMEM;
        return n && ret->form <= WB__SECRET_USE__FORM__ENV ? 0 : -EINVAL;
}

static int take_secrets(const struct exec_options *o, struct request *q)
{
        q->secrets = calloc(o->secrets.n + 1, sizeof(*q->secrets));
        q->secret_pointers = calloc(o->secrets.n + 1, sizeof(void *));
        if (!q->secrets || !q->secret_pointers)
                return -ENOMEM;
        q->start.secrets = q->secret_pointers;
        for (size_t i = 0; i < o->secrets.n; i++) {
                int r = parse_secret(o->secrets.items[i], &q->secrets[i]);

                q->secret_pointers[i] = &q->secrets[i];
                q->start.n_secrets = i + 1;
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        return options_usage_error(
                                &table, "--secret wants NAME[:fd|mount|env], not '%s'", o->secrets.items[i]);
        }
        return 0;
}

static int take_caps(const struct exec_options *o, struct request *q)
{
        size_t n = 1;
        char *rest, *name;

        if (!o->caps)
                return 0;
        q->start.caps_set = true;
        if (strcmp(o->caps, "none") == 0)
                return 0;
        for (const char *p = o->caps; *p; p++)
                n += *p == ',';
        q->caps_text = strdup(o->caps);
        q->caps = calloc(n, sizeof(*q->caps));
        if (!q->caps_text || !q->caps)
                return -ENOMEM;
        q->start.caps = q->caps;
        for (rest = q->caps_text; (name = strsep(&rest, ","));) {
                if (!*name)
                        return options_usage_error(&table, "--caps wants none or NAME[,NAME...], not '%s'", o->caps);
                q->caps[q->start.n_caps++] = name;
        }
        return 0;
}

/* A file of one of the words' names is ./default. */
static int take_seccomp(const struct exec_options *o, struct request *q)
{
        size_t n;
        int r;

        if (!o->seccomp)
                return 0;
        if (strcmp(o->seccomp, "default") == 0 || strcmp(o->seccomp, "off") == 0) {
                q->start.seccomp =
                        *o->seccomp == 'o' ? WB__SECCOMP_PROFILE__SECCOMP_OFF : WB__SECCOMP_PROFILE__SECCOMP_DEFAULT;
                return 0;
        }
        r = seccomp_file_compile(o->seccomp, &q->seccomp, &n);
        if (r != 0)
                return r;
        q->start.seccomp = WB__SECCOMP_PROFILE__SECCOMP_CUSTOM;
        q->start.seccomp_program = (ProtobufCBinaryData){n, q->seccomp};
        return 0;
}

/* To the agent 0 is no limit, and whoever gives one wants one. */
static int take_limit(const char *option, uint64_t given, uint64_t *ret)
{
        if (given == 0)
                return options_usage_error(&table, "--%s wants more than 0", option);
        *ret = given == NOT_GIVEN ? 0 : given;
        return 0;
}

static int take_limits(const struct exec_options *o, struct request *q)
{
        uint64_t cpu_percent = 0;
        int r;

        wb__exec_limits__init(&q->limits);
        r = take_limit("timeout", o->timeout_ms, &q->start.timeout_ms);
        if (r == 0)
                r = take_limit("memory", o->memory_bytes, &q->limits.memory_bytes);
        if (r == 0)
                r = take_limit("pids", o->pids, &q->limits.pids);
        if (r == 0)
                r = take_limit("cpu", o->cpu_percent, &cpu_percent);
        if (r == 0)
                r = take_limit("io", o->io_bps, &q->limits.io_bps);
        if (r == 0 && cpu_percent > WB_CPU_PERCENT_MAX)
                return options_usage_error(&table, "--cpu is at most %u", WB_CPU_PERCENT_MAX);
        q->limits.cpu_percent = (uint32_t)cpu_percent;
        q->start.limits = &q->limits;
        return r;
}

static int take_modes(const struct exec_options *o, struct request *q)
{
        const char *nice = o->nice ? o->nice : "0";
        bool negative = *nice == '-';
        uint64_t value;

        if (o->umask && parse_octal(o->umask, 0777, &q->start.umask) < 0)
                return options_usage_error(&table, "--umask wants an octal number up to 777, not '%s'", o->umask);
        if (parse_u64(nice + negative, negative ? -NICE_LEAST : NICE_MOST, &value) < 0)
                return options_usage_error(&table, "--nice wants a number from -20 to 19, not '%s'", nice);
        q->start.umask_set = o->umask != NULL;
        q->start.nice_set = o->nice != NULL;
        q->start.nice = negative ? -(int32_t)value : (int32_t)value;
        q->start.no_new_privs = o->no_new_privs;
        return 0;
}

static int take_options(const struct exec_options *o, char *const *argv, size_t argv_n, struct request *q)
{
        int r;

        if (argv_n == 0)
                return options_usage_error(&table, "there is no command");
        if (o->user && !*o->user) /* to the agent it would be root */
                return options_usage_error(&table, "--user wants U[:G][,G...], not ''");
        r = take_texts(o, argv, argv_n, q);
        if (r == 0)
                r = take_rlimits(o, q);
        if (r == 0)
                r = take_secrets(o, q);
        if (r == 0)
                r = take_caps(o, q);
        if (r == 0)
                r = take_limits(o, q);
        if (r == 0)
                r = take_modes(o, q);
        if (r == 0)
                r = take_seccomp(o, q);
        q->start.user = (char *)(uintptr_t)(o->user ? o->user : "");
        if (o->cwd)
                q->start.cwd = bytes_of(o->cwd);
        return r;
}

static int run(const struct exec_options *o, struct request *q)
{
        const struct session_options session = {.terminal = o->terminal, .detach = o->detach, .result_path = o->result};
        struct target target = {0};
        int fd, r;

        q->start.stdin_closed = !session_prepare();
        r = target_resolve(&table, &o->target, &target);
        if (r == 0)
                r = agent_call_dial(&target, o->connect_ms, &fd);
        if (r == 0)
                r = session_exec(fd, &q->start, &session);
        target_done(&target);
        return r;
}

int command_exec(int argc, char **argv)
{
        struct exec_options options = {.connect_ms = AGENT_CALL_TIMEOUT_MS,
                .timeout_ms = NOT_GIVEN,
                .memory_bytes = NOT_GIVEN,
                .pids = NOT_GIVEN,
                .cpu_percent = NOT_GIVEN,
                .io_bps = NOT_GIVEN};
        struct request request = {.start = WB__EXEC_START__INIT};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &options, &rest, &rest_n);

        if (r == 0)
                r = take_options(&options, rest, rest_n, &request);
        if (r == 0)
                r = run(&options, &request);
        else if (r == OPTIONS_E_HELP)
                r = 0;
        else if (r < 0)
                fprintf(stderr, "wbctl: %s\n", strerror(-r));
        request_done(&request);
        option_strings_done(&options.env);
        option_strings_done(&options.rlimits);
        option_strings_done(&options.secrets);
        return r < 0 ? EXIT_FAILED : r;
}
