/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/options.h"
#include "proto/base/wipe.h"
#include "proto/wire/codec.h"
#include "proto/wire/limits.h"
#include "tools/wbctl/agent_call.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/guest_command.h"
#include "tools/wbctl/secret_file.h"
#include "tools/wbctl/target.h"

/* An activation's steps have limits of their own in the agent (hooks have 10 s each). */
#define ACTIVATION_LIMIT_MS UINT64_C(400000)

struct activate_options {
        struct target_options target;
        struct option_strings secrets;
        uint64_t secret_ttl_ms;
        const char *hostname;
        uint64_t timeout_ms;
        bool egress;
        bool json;
};

static const struct option_spec specs[] = {
        TARGET_SPECS(struct activate_options, target),
        {"secret", 0, OPTION_STRINGS, offsetof(struct activate_options, secrets), "NAME=FILE",
                "hand over a secret (repeatable)"},
        {"secret-ttl", 0, OPTION_DURATION_MS, offsetof(struct activate_options, secret_ttl_ms), "DURATION",
                "after which the guest wipes the secrets (at the next quiesce)"},
        {"hostname", 0, OPTION_STRING, offsetof(struct activate_options, hostname), "NAME", "what the guest is called"},
        {"egress", 0, OPTION_FLAG, offsetof(struct activate_options, egress), NULL,
                "a broker or proxy listens at port 1025: carry it to workloads"},
        {"timeout", 0, OPTION_DURATION_MS, offsetof(struct activate_options, timeout_ms), "DURATION",
                "how long the guest may take to be there (5s)"},
        {"json", 0, OPTION_FLAG, offsetof(struct activate_options, json), NULL, "one JSON object"},
};

static const struct option_table table = {
        .usage = "wbctl activate " TARGET_USAGE " [--secret NAME=FILE]... [--egress]",
        .summary =
                "Activates a guest without a broker: randomness, clock, identity, secrets; then commands may run in it.",
        .example = "wbctl activate --uds /run/vm/demo.vsock --secret TOKEN=token.txt --secret-ttl 1h",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(specs[0]),
        .intermixed = true,
};

/* ---- the message */

struct order {
        Wb__Activate activate;
        Wb__Network network;
        uint8_t seed[WB_SEED_BYTES];
        uint8_t nonce[WB_NONCE_BYTES];
        Wb__Secret secrets[WB_SECRETS_MAX];
        Wb__Secret *secret_pointers[WB_SECRETS_MAX];
        char *names[WB_SECRETS_MAX];
        size_t secrets_n;
};

static void order_done(struct order *o)
{
        for (size_t i = 0; i < o->secrets_n; i++) {
                wipe_free(o->secrets[i].value.data);
                free(o->names[i]);
        }
        explicit_bzero(o->seed, sizeof(o->seed));
}

static bool is_there(const struct order *o, const char *name)
{
        for (size_t i = 0; i < o->secrets_n; i++)
                if (strcmp(o->names[i], name) == 0)
                        return true;
        return false;
}

/* NAME=FILE. 0, or an exit status, said. */
static int add_secret(struct order *o, const char *text, uint64_t ttl_ms)
{
        const char *equals = strchr(text, '=');
        _cleanup_free_ char *name = NULL;
        char *value;
        size_t n;
        int r;

        if (!equals || !equals[1] || !agent_call_is_secret_name(text, (size_t)(equals - text)))
                return options_usage_error(
                        &table, "--secret wants NAME=FILE, NAME of letters, digits and _, not '%s'", text);
        if (o->secrets_n == WB_SECRETS_MAX)
                return options_usage_error(&table, "at most %u secrets", WB_SECRETS_MAX);
        name = strndup(text, (size_t)(equals - text));
        if (!name)
                return EXIT_FAILED;
        if (is_there(o, name))
                return options_usage_error(&table, "secret %s is there twice", name);
        r = secret_file_read("--secret", equals + 1, &value, &n);
        if (r != 0)
                return r;
        o->secrets[o->secrets_n] = (Wb__Secret)WB__SECRET__INIT;
        o->secrets[o->secrets_n].name = name;
        o->secrets[o->secrets_n].value.data = (uint8_t *)value;
        o->secrets[o->secrets_n].value.len = n;
        o->secrets[o->secrets_n].ttl_ms = ttl_ms;
        o->secret_pointers[o->secrets_n] = &o->secrets[o->secrets_n];
        o->names[o->secrets_n++] = STEAL(name);
        return 0;
}

static int draw(uint8_t *to, size_t n)
{
        if (getrandom(to, n, 0) == (ssize_t)n)
                return 0;
        fprintf(stderr, "wbctl: getrandom: %s\n", strerrordesc_np(errno));
        return EXIT_FAILED;
}

static int fill_order(
        struct order *o, const struct activate_options *options, const struct target *target, uint64_t generation)
{
        int r = draw(o->seed, sizeof(o->seed));

        if (r == 0)
                r = draw(o->nonce, sizeof(o->nonce));
        for (size_t i = 0; r == 0 && i < options->secrets.n; i++)
                r = add_secret(o, options->secrets.items[i], options->secret_ttl_ms);
        if (r != 0)
                return r;
        o->activate = (Wb__Activate)WB__ACTIVATE__INIT;
        o->activate.seed = (ProtobufCBinaryData){sizeof(o->seed), o->seed};
        o->activate.nonce = (ProtobufCBinaryData){sizeof(o->nonce), o->nonce};
        o->activate.generation = generation;
        if (options->hostname)
                o->activate.hostname = (char *)(uintptr_t)options->hostname;
        o->activate.set_clock = target->transport.kind != TRANSPORT_UNIX;
        o->activate.n_secrets = o->secrets_n;
        o->activate.secrets = o->secret_pointers;
        if (options->egress) {
                o->network = (Wb__Network)WB__NETWORK__INIT;
                o->network.egress = true;
                o->activate.network = &o->network;
        }
        return 0;
}

/* ---- the conversation */

struct conversation {
        struct client_call call;
        const struct activate_options *options;
        json_t *steps;
};

static int answer_probe(struct conversation *v, const Wb__ClockProbe *probe)
{
        Wb__ClockSample sample = WB__CLOCK_SAMPLE__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        sample.cookie = probe->cookie;
        sample.realtime_ns = clock_realtime_ns();
        m.body_case = WB__TO_AGENT__BODY_CLOCK_SAMPLE;
        m.clock_sample = &sample;
        return client_call_send(&v->call, &m);
}

static int conclude(struct conversation *v, const Wb__ActivateDone *done)
{
        if (v->options->json) {
                json_t *root = json_pack("{s:b, s:I, s:s?, s:O}", "ok", (int)done->ok, "generation",
                        (json_int_t)done->generation, "failed_step", done->ok ? NULL : done->failed_step, "steps",
                        v->steps);

                (void)json_dumpf(root, stdout, JSON_INDENT(2));
                putchar('\n');
                json_decref(root);
        } else if (done->ok) {
                printf("activated, generation %" PRIu64 "\n", done->generation);
        }
        if (!done->ok)
                fprintf(stderr, "wbctl: activation failed at %s; the gate stays closed\n", done->failed_step);
        return done->ok ? 0 : EXIT_FAILED;
}

/* -1 to go on, else the exit status. */
static int take_message(struct conversation *v, const Wb__FromAgent *m)
{
        int r;

        if (m->body_case == WB__FROM_AGENT__BODY_CLOCK_PROBE) {
                r = answer_probe(v, m->clock_probe);
                return r < 0 ? agent_call_failed(r, NULL) : -1;
        }
        if (m->body_case == WB__FROM_AGENT__BODY_ACTIVATE_STEP) {
                if (v->options->json)
                        (void)json_array_append_new(v->steps, agent_call_step_json(m->activate_step));
                else
                        agent_call_print_step(m->activate_step);
                return -1;
        }
        if (m->body_case == WB__FROM_AGENT__BODY_ACTIVATE_DONE)
                return conclude(v, m->activate_done);
        return agent_call_failed(0, m);
}

static int converse(struct conversation *v, Wb__Activate *activate)
{
        Wb__ToAgent opening = WB__TO_AGENT__INIT;
        int r;

        opening.body_case = WB__TO_AGENT__BODY_ACTIVATE;
        opening.activate = activate;
        r = client_call_send(&v->call, &opening);
        if (r < 0)
                return agent_call_failed(r, NULL);
        do {
                Wb__FromAgent *m = NULL;

                r = client_call_receive(&v->call, &m);
                r = r < 0 ? agent_call_failed(r, NULL) : take_message(v, m);
                codec_free_from_agent(m);
        } while (r < 0);
        return r;
}

/* The generation after the last one that the guest has seen. */
static int next_generation(const struct target *target, uint64_t timeout_ms, uint64_t *ret)
{
        Wb__InfoRequest request = WB__INFO_REQUEST__INIT;
        Wb__ToAgent question = WB__TO_AGENT__INIT;
        Wb__FromAgent *answer;
        int r;

        question.body_case = WB__TO_AGENT__BODY_INFO;
        question.info = &request;
        r = agent_call_ask(target, timeout_ms, &question, WB__FROM_AGENT__BODY_INFO, &answer);
        if (r != 0)
                return r;
        *ret = answer->info->generation + 1;
        codec_free_from_agent(answer);
        return 0;
}

static int activate(const struct activate_options *options, const struct target *target)
{
        struct conversation v = {.options = options};
        _cleanup_close_ int fd = -1;
        struct order order = {0};
        uint64_t generation = 0;
        int r = next_generation(target, options->timeout_ms, &generation);

        if (r == 0)
                r = fill_order(&order, options, target, generation);
        if (r == 0)
                r = agent_call_dial(target, options->timeout_ms, &fd);
        if (r == 0) {
                v.steps = json_array();
                client_call_init(&v.call, fd, clock_monotonic_ns() + ACTIVATION_LIMIT_MS * NSEC_PER_MSEC);
                r = converse(&v, &order.activate);
                client_call_done(&v.call);
                json_decref(v.steps);
        }
        order_done(&order);
        return r;
}

static int run(void *userdata, const struct target *target, char **args, size_t args_n)
{
        const struct activate_options *options = userdata;

        (void)args, (void)args_n;
        if (options->hostname && (!*options->hostname || strlen(options->hostname) > WB_HOSTNAME_MAX))
                return options_usage_error(&table, "--hostname wants 1 to %u bytes", WB_HOSTNAME_MAX);
        return activate(options, target);
}

int command_activate(int argc, char **argv)
{
        static const struct guest_command command = {
                .table = &table, .target_offset = offsetof(struct activate_options, target), .run = run};
        struct activate_options options = {.timeout_ms = AGENT_CALL_TIMEOUT_MS};
        int status = guest_command_run(&command, argc, argv, &options);

        option_strings_done(&options.secrets);
        return status;
}
