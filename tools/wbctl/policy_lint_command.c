/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_command.h"
#include "tools/wbctl/policy_lint.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

struct lint_options {
        bool json;
};

static const struct option_spec specs[] = {
        {"json", 0, OPTION_FLAG, offsetof(struct lint_options, json), NULL, "one JSON object instead of text"},
};

static const struct option_table table = {
        .usage = "wbctl policy lint [--json] FILE",
        .summary =
                "Says what in a valid policy is probably not meant, as FILE:LINE:COLUMN: exit 0 nothing (notes apart), "
                "1 something, 2 invalid.",
        .example = "wbctl policy lint demo.yaml",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

static json_t *answer_json(const char *file, const struct lint *l, bool clean)
{
        json_t *findings = json_array();

        for (size_t i = 0; i < l->n; i++) {
                const struct lint_finding *f = &l->findings[i];

                (void)json_array_append_new(findings,
                        json_pack("{s:s, s:s, s:o, s:i, s:i, s:s}", "severity", f->is_note ? "note" : "warning", "code",
                                lint_code_name(f->code), "rule", f->rule < 0 ? json_null() : json_integer(f->rule),
                                "line", (int)f->place.line, "column", (int)f->place.column, "message", f->message));
        }
        return json_pack("{s:b, s:s%, s:b, s:b, s:b, s:o}", "valid", 1, "file", file, strlen(file), "clean", clean,
                "complete", l->complete, "cut", l->is_cut, "findings", findings);
}

static void print_text(const char *file, const struct lint *l)
{
        for (size_t i = 0; i < l->n; i++) {
                const struct lint_finding *f = &l->findings[i];

                printf("%s:%u:%u: %s: %s [%s]\n", file, f->place.line, f->place.column, f->is_note ? "note" : "warning",
                        f->message, lint_code_name(f->code));
        }
        if (l->is_cut)
                printf("%s: ... and more\n", file);
        if (!l->complete)
                printf("%s: too large: not every rule was tried for its effect\n", file);
}

static int lint(const struct lint_options *o, const char *file)
{
        _cleanup_(policy_unrefp) struct policy *policy = NULL;
        struct lint l = {0};
        bool clean = true;
        int r = policy_command_load(file, o->json, &policy);

        if (r != 0)
                return r;
        r = policy_lint(policy, &l);
        if (r < 0) {
                log_errno(r, "%s: cannot be judged", file);
                return EXIT_FAILED;
        }
        for (size_t i = 0; i < l.n; i++)
                clean = clean && l.findings[i].is_note;
        if (o->json)
                r = policy_command_print(answer_json(file, &l, clean));
        else
                print_text(file, &l);
        policy_lint_done(&l);
        return r != 0 || fflush(stdout) != 0 ? EXIT_FAILED : clean ? 0 : EXIT_NO;
}

int policy_command_lint(int argc, char **argv)
{
        struct lint_options o = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && rest_n != 1)
                r = options_usage_error(&table, "one FILE is wanted");
        if (r != 0)
                return r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        return lint(&o, rest[0]);
}
