/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/agent_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/command.h"

static const char *error_text(int r)
{
        const char *text = strerrordesc_np(-r);

        return text ? text : "unknown error";
}

int agent_call_dial(const struct target *target, uint64_t timeout_ms, int *ret_fd)
{
        int last = 0, r;

        r = transport_dial_guest(
                &target->transport, WB_PORT_CONTROL, clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC, ret_fd, &last);
        if (r == 0)
                return 0;
        fprintf(stderr, "wbctl: cannot reach the agent: %s", error_text(r));
        if (r == -ETIMEDOUT && last)
                fprintf(stderr, " (%s)", error_text(last));
        fputc('\n', stderr);
        return EXIT_FAILED;
}

int agent_call_failed(int r, const Wb__FromAgent *m)
{
        if (r < 0)
                fprintf(stderr, "wbctl: the agent did not answer: %s\n", error_text(r));
        else if (m && m->body_case == WB__FROM_AGENT__BODY_ERROR)
                fprintf(stderr, "wbctl: %s: %s\n", m->error->reason, m->error->detail);
        else
                fprintf(stderr, "wbctl: the agent answered something else than was asked\n");
        return EXIT_FAILED;
}

int agent_call_ask(const struct target *target, uint64_t timeout_ms, const Wb__ToAgent *question,
        Wb__FromAgent__BodyCase wanted, Wb__FromAgent **ret)
{
        _cleanup_close_ int fd = -1;
        Wb__FromAgent *m = NULL;
        int r = agent_call_dial(target, timeout_ms, &fd);

        if (r != 0)
                return r;
        r = client_ask(fd, clock_monotonic_ns() + timeout_ms * NSEC_PER_MSEC, question, &m);
        if (r == 0 && m->body_case == wanted) {
                *ret = m;
                return 0;
        }
        r = agent_call_failed(r, m);
        codec_free_from_agent(m);
        return r;
}

int agent_call_tell(const struct target *target, uint64_t timeout_ms, const Wb__ToAgent *order)
{
        Wb__FromAgent *answer = NULL;
        int r = agent_call_ask(target, timeout_ms, order, WB__FROM_AGENT__BODY_OK, &answer);

        codec_free_from_agent(answer);
        return r;
}

bool agent_call_is_secret_name(const char *text, size_t n)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

        return n > 0 && n <= WB_SECRET_NAME_MAX && strspn(text, letters) == n && !(*text >= '0' && *text <= '9');
}

void agent_call_print_step(const Wb__ActivateStep *step)
{
        printf("%-9s %-6s %8.3f ms  %s", step->name, step->ok ? "ok" : "FAILED", (double)step->duration_ns / 1e6,
                step->detail);
        for (size_t i = 0; i < step->n_evidence; i++)
                printf("%s%s=%s", i ? " " : "  [", step->evidence[i]->name, step->evidence[i]->value);
        printf("%s\n", step->n_evidence ? "]" : "");
        (void)fflush(stdout);
}

json_t *agent_call_step_json(const Wb__ActivateStep *step)
{
        json_t *evidence = json_object();

        for (size_t i = 0; i < step->n_evidence; i++) {
                json_t *before = json_object_get(evidence, step->evidence[i]->name);
                json_t *value = json_string(step->evidence[i]->value);

                /* A name that comes again, as hook does, makes a list. */
                if (!before)
                        (void)json_object_set_new(evidence, step->evidence[i]->name, value);
                else if (json_is_array(before))
                        (void)json_array_append_new(before, value);
                else
                        (void)json_object_set_new(evidence, step->evidence[i]->name, json_pack("[O,o]", before, value));
        }
        return json_pack("{s:s, s:b, s:s, s:I, s:o}", "name", step->name, "ok", (int)step->ok, "detail", step->detail,
                "duration_ns", (json_int_t)step->duration_ns, "evidence", evidence);
}
