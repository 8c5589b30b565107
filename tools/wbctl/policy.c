/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "broker/isolation.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_command.h"
#include "tools/wbctl/policy_lint.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

struct check_options {
        bool json;
};

static const struct option_spec check_specs[] = {
        {"json", 0, OPTION_FLAG, offsetof(struct check_options, json), NULL, "one JSON object instead of text"},
};

static const struct option_table check_table = {
        .usage = "wbctl policy check [--json] FILE",
        .summary = "Checks a policy as the broker does when it loads it: exit 0, or 2 with FILE:LINE:COLUMN: message.",
        .example = "wbctl policy check demo.yaml",
        .specs = check_specs,
        .specs_n = sizeof(check_specs) / sizeof(*check_specs),
        .intermixed = true,
};

static const char *const networks[] = {
        [NETWORK_NONE] = "none",
        [NETWORK_ALLOWLIST_DOMAIN] = "allowlist_domain",
        [NETWORK_PUBLIC] = "public",
};

static size_t count_deny_rules(const struct policy *policy)
{
        size_t n = 0;

        for (size_t i = 0; i < policy->rules_n; i++)
                n += policy->rules[i].deny;
        return n;
}

/* What is valid and surely not meant is lint's to tell. */
static void print_note(const char *file, const struct policy *policy)
{
        struct lint l;
        size_t n = 0;

        if (policy_lint(policy, &l) < 0)
                return;
        for (size_t i = 0; i < l.n; i++)
                n += !l.findings[i].is_note;
        if (n)
                printf("note: %zu thing%s in it %s probably not meant: wbctl policy lint %s\n", n, n == 1 ? "" : "s",
                        n == 1 ? "is" : "are", file);
        policy_lint_done(&l);
}

static void print_text(const char *file, const struct policy *policy)
{
        size_t denies = count_deny_rules(policy), allows = policy->rules_n - denies;

        printf("%s: valid: network %s, %zu allow rule%s, %zu deny rule%s, isolation %s (at least %s)\n", file,
                networks[policy->network], allows, allows == 1 ? "" : "s", denies, denies == 1 ? "" : "s",
                isolation_class_name(policy->isolation), isolation_tier_name(isolation_needed(policy, false)));
        print_note(file, policy);
}

static int print_policy_json(const char *file, const struct policy *policy)
{
        size_t denies = count_deny_rules(policy);
        char sha256[2 * sizeof(policy->sha256) + 1];

        for (size_t i = 0; i < sizeof(policy->sha256); i++)
                (void)sprintf(sha256 + 2 * i, "%02x", policy->sha256[i]);
        return policy_command_print(
                json_pack("{s:b, s:s%, s:s, s:I, s:I, s:s, s:s, s:s}", "valid", 1, "file", file, strlen(file),
                        "network", networks[policy->network], "allow_rules", (json_int_t)(policy->rules_n - denies),
                        "deny_rules", (json_int_t)denies, "isolation", isolation_class_name(policy->isolation), "needs",
                        isolation_tier_name(isolation_needed(policy, false)), "sha256", sha256));
}

static int check(const struct check_options *o, const char *file)
{
        _cleanup_(policy_unrefp) struct policy *policy = NULL;
        int r = policy_command_load(file, o->json, &policy);

        if (r != 0)
                return r;
        if (o->json)
                return print_policy_json(file, policy);
        print_text(file, policy);
        if (fflush(stdout) != 0) {
                log_errno(-errno, "%s: cannot be answered for", file);
                return EXIT_FAILED;
        }
        return 0;
}

int policy_command_check(int argc, char **argv)
{
        struct check_options o = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&check_table, argc, argv, &o, &rest, &rest_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && rest_n != 1)
                r = options_usage_error(&check_table, "one FILE is wanted");
        if (r != 0)
                return r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        return check(&o, rest[0]);
}

static const struct command commands[] = {
        {"check", "is a policy file valid?", policy_command_check},
        {"diff", "what one policy allows that another does not", policy_command_diff},
        {"lint", "what in a valid policy is probably not meant", policy_command_lint},
        {"suggest", "a policy of what an audit log asks for", policy_command_suggest},
        {NULL, NULL, NULL},
};

static const struct command_group group = {"wbctl policy", NULL, commands};

int command_policy(int argc, char **argv)
{
        return command_group_run(&group, argc, argv);
}
