/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/policy_load.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/bucket.h"
#include "broker/isolation.h"
#include "proto/base/cleanup.h"
#include "proto/base/sha256.h"

DEFINE_CLEANUP(struct policy *, policy_unref);
DEFINE_CLEANUP(struct yaml_document *, yaml_document_free);

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

#define QUOTA_MAX_BYTES (UINT64_C(1) << 60)
#define COUNT_MAX       UINT64_C(0x7fffffff) /* connections, requests per second */
#define BURST_LEAST     UINT64_C(65536)
#define ITEMS_MAX       UINT16_MAX /* of a list in a rule: every port has room */
#define RULES_MAX       YAML_MAX_NODES

/* A request's head has at most 16 KiB: a longer path never comes. */
#define PATH_MAX_BYTES (16u * 1024u)

static const struct yaml_range version_range = {1, 1};
static const struct yaml_range rate_range = {1, BUCKET_RATE_MAX_BPS};
static const struct yaml_range burst_range = {1, BUCKET_BURST_MAX_BYTES};
static const struct yaml_range quota_range = {0, QUOTA_MAX_BYTES};
static const struct yaml_range count_range = {1, COUNT_MAX};

/* Written out here and not asked of isolation.c, since "unknown" is none that a policy can ask for. */
static const char *const tier_words[] = {"container", "gvisor", "microvm"};
static const struct yaml_words tiers = {tier_words, COUNT(tier_words)};
static_assert(TIER_GVISOR == TIER_CONTAINER + 1 && TIER_MICROVM == TIER_CONTAINER + 2 &&
                      COUNT(tier_words) == TIER_MAX_ - TIER_CONTAINER,
        "the words are in another order");

static const char *const class_words[] = {
        [CLASS_STANDARD] = "standard",
        [CLASS_TRUSTED] = "trusted",
        [CLASS_UNTRUSTED] = "untrusted",
        [CLASS_HOSTILE] = "hostile",
        [CLASS_WASM] = "wasm",
        [CLASS_DEVCONTAINER] = "devcontainer",
};
static const struct yaml_words classes = {class_words, COUNT(class_words)};
static_assert(COUNT(class_words) == CLASS_MAX_, "a class has no word");

static const char *const network_words[] = {
        [NETWORK_NONE] = "none",
        [NETWORK_ALLOWLIST_DOMAIN] = "allowlist_domain",
        [NETWORK_PUBLIC] = "public",
};
static const struct yaml_words networks = {network_words, COUNT(network_words)};

static const char *const protocol_words[] = {
        [PROTOCOL_AUTO] = "auto",
        [PROTOCOL_TLS] = "tls",
        [PROTOCOL_HTTP] = "http",
        [PROTOCOL_TCP] = "tcp",
};
static const struct yaml_words protocols = {protocol_words, COUNT(protocol_words)};
static_assert(COUNT(protocol_words) == PROTOCOL_MAX_, "a protocol has no word");

static const char *const action_words[] = {"allow", "deny"};
static const struct yaml_words actions = {action_words, COUNT(action_words)};

/* A member's struct, of which the field knows the offset. */
static void *owner(void *member, const struct yaml_field *f)
{
        return (char *)member - f->offset;
}

static int bind_version(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        uint64_t version;

        (void)member; /* there is only one */
        return yaml_bind_u64(c, v, f, &version);
}

static int bind_tier(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        int r = yaml_bind_enum(c, v, f, member);

        if (r == 0)
                *(int *)member += TIER_CONTAINER;
        return r;
}

static int bind_action(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        int action;
        int r = yaml_bind_enum(c, v, f, &action);

        if (r == 0)
                *(bool *)member = action == 1;
        return r;
}

static int bind_protocol(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        ((struct policy_rule *)owner(member, f))->protocol_set = true;
        return yaml_bind_enum(c, v, f, member);
}

static int bind_pattern(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        _cleanup_free_ char *text = NULL;
        char message[PATTERN_MESSAGE_BYTES];
        int r = yaml_bind_string(c, v, f, &text);

        if (r != 0)
                return r;
        if (pattern_parse(text, strlen(text), member, message, sizeof(message)) != 0)
                return yaml_fail(c, v, "pattern: \"%.60s\": %s", text, message);
        return 0;
}

static int bind_method(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        char upper[32] = "";
        const char *text;
        int r = yaml_bind_string(c, v, f, member);

        if (r != 0)
                return r;
        text = *(char **)member;
        if (!*text)
                return yaml_fail(c, v, "%s: a method is empty", f->key);
        if (!request_is_method(text, v->text_n))
                return yaml_fail(c, v, "%s: \"%.60s\" is no method", f->key, text);
        if (strcmp(text, "*") == 0)
                return yaml_fail(c, v, "%s: \"*\" is no method; leave the key out for any", f->key);
        for (size_t i = 0; i < v->text_n && i < sizeof(upper) - 1; i++)
                upper[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
        for (const char *p = text; *p; p++)
                if (*p >= 'a' && *p <= 'z')
                        return yaml_fail(c, v, "%s: methods are case-sensitive, \"%.60s\" would never match; write %s",
                                f->key, text, upper);
        return 0;
}

static int bind_path(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const char *text;
        int r = yaml_bind_string(c, v, f, member);

        if (r != 0)
                return r;
        text = *(char **)member;
        if (*text != '/')
                return yaml_fail(c, v, "%s: a path begins with a slash; \"%.60s\" would never match, write /%.60s",
                        f->key, text, text);
        if (strpbrk(text, "?#"))
                return yaml_fail(
                        c, v, "%s: the query and the fragment (from ? or #) are not matched; leave them out", f->key);
        if (!request_is_path(text, v->text_n))
                return yaml_fail(c, v,
                        "%s: a path has no spaces and no letters but ASCII; percent-encode them as a request does",
                        f->key);
        if (v->text_n > PATH_MAX_BYTES)
                return yaml_fail(c, v, "%s: a path is too long: more than %u bytes", f->key, PATH_MAX_BYTES);
        return 0;
}

static int bind_quota(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct policy_limits *limits =
                (struct policy_limits *)(void *)((char *)member - offsetof(struct policy_limits, quota_bytes));

        limits->quota_set = true;
        return yaml_bind_u64(c, v, f, member);
}

/* The quantities that a rule and the whole VM have in common; at is where the limits are in the target. */
#define LIMIT_FIELDS(at)                                                                                               \
        {"rate_bps", yaml_bind_u64, (at) + offsetof(struct policy_limits, rate_bps), &rate_range, false},              \
                {"burst_bytes", yaml_bind_u64, (at) + offsetof(struct policy_limits, burst_bytes), &burst_range,       \
                        false},                                                                                        \
                {"quota_bytes", bind_quota, (at) + offsetof(struct policy_limits, quota_bytes), &quota_range, false},  \
                {"max_connections", yaml_bind_u64, (at) + offsetof(struct policy_limits, max_connections),             \
                        &count_range, false},                                                                          \
        {                                                                                                              \
                "requests_per_s", yaml_bind_u64, (at) + offsetof(struct policy_limits, requests_per_s), &count_range,  \
                        false                                                                                          \
        }

static const struct yaml_list port_list = {
        .item = {"ports", yaml_bind_port, 0, NULL, false},
        .item_bytes = sizeof(uint16_t),
        .most = ITEMS_MAX,
        .count_offset = offsetof(struct policy_rule, ports_n),
};
static const struct yaml_list method_list = {
        .item = {"http_methods", bind_method, 0, NULL, false},
        .item_bytes = sizeof(char *),
        .most = ITEMS_MAX,
        .count_offset = offsetof(struct policy_rule, methods_n),
};
static const struct yaml_list path_list = {
        .item = {"http_paths", bind_path, 0, NULL, false},
        .item_bytes = sizeof(char *),
        .most = ITEMS_MAX,
        .count_offset = offsetof(struct policy_rule, paths_n),
};

static const struct yaml_field rule_fields[] = {
        {"pattern", bind_pattern, offsetof(struct policy_rule, pattern), NULL, true},
        {"action", bind_action, offsetof(struct policy_rule, deny), &actions, false},
        {"ports", yaml_bind_list, offsetof(struct policy_rule, ports), &port_list, false},
        {"protocol", bind_protocol, offsetof(struct policy_rule, protocol), &protocols, false},
        {"http_methods", yaml_bind_list, offsetof(struct policy_rule, methods), &method_list, false},
        {"http_paths", yaml_bind_list, offsetof(struct policy_rule, paths), &path_list, false},
        LIMIT_FIELDS(offsetof(struct policy_rule, limits)),
};
static const struct yaml_object rule_object = {rule_fields, COUNT(rule_fields)};
static_assert(COUNT(rule_fields) == RULE_KEY_MAX_, "a rule's key has no place");

/* Where the values of these fields stand. */
static void take_places(const struct yaml_node *mapping, const struct yaml_field *fields, size_t fields_n,
        struct policy_place *ret_places)
{
        for (size_t i = 0; i < fields_n; i++) {
                const struct yaml_node *value = yaml_get(mapping, fields[i].key);

                if (value)
                        ret_places[i] = (struct policy_place){value->line, value->column};
        }
}

static void finish_limits(struct policy_limits *limits)
{
        uint64_t quarter = limits->rate_bps / 4;

        if (limits->rate_bps && !limits->burst_bytes)
                limits->burst_bytes = quarter > BURST_LEAST ? quarter : BURST_LEAST;
}

/* A rule that names no ports allows two of them, and denies all. */
static int default_ports(struct policy_rule *rule)
{
        if (rule->deny || rule->ports_n)
                return 0;
        rule->ports = calloc(2, sizeof(*rule->ports));
        if (!rule->ports)
                return -ENOMEM;
        rule->ports[0] = 80;
        rule->ports[1] = 443;
        rule->ports_n = 2;
        return 0;
}

static int bind_rule(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct policy_rule *rule = member;
        int r = yaml_bind_object(c, v, f, rule);

        if (r != 0)
                return r;
        if (rule->protocol == PROTOCOL_TCP && (rule->methods_n || rule->paths_n))
                return yaml_fail(c, yaml_get(v, "protocol"), "protocol: tcp is an opaque stream and goes with no %s",
                        rule->methods_n ? "http_methods" : "http_paths");
        rule->line = v->line;
        rule->column = v->column;
        take_places(v, rule_fields, COUNT(rule_fields), rule->places);
        finish_limits(&rule->limits);
        return default_ports(rule);
}

static const struct yaml_list rule_list = {
        .item = {"a rule", bind_rule, 0, &rule_object, false},
        .item_bytes = sizeof(struct policy_rule),
        .most = RULES_MAX,
        .count_offset = offsetof(struct policy, rules_n),
};

static const struct yaml_field limit_fields[] = {LIMIT_FIELDS(0)};
static const struct yaml_object limit_object = {limit_fields, COUNT(limit_fields)};
static_assert(COUNT(limit_fields) == LIMIT_KEY_MAX_, "a limit's key has no place");

static const struct yaml_field policy_fields[] = {
        {"version", bind_version, 0, &version_range, false},
        {"isolation", yaml_bind_enum, offsetof(struct policy, isolation), &classes, false},
        {"require_isolation", bind_tier, offsetof(struct policy, require_isolation), &tiers, false},
        {"network", yaml_bind_enum, offsetof(struct policy, network), &networks, false},
        {"egress_rules", yaml_bind_list, offsetof(struct policy, rules), &rule_list, false},
        {"limits", yaml_bind_object, offsetof(struct policy, limits), &limit_object, false},
};
static_assert(COUNT(policy_fields) == POLICY_KEY_MAX_, "a policy's key has no place");

/* The policy itself: the whole document, or what stands under `spec`, beside which other keys are not ours to judge. */
static int find_policy(const struct yaml_context *c, const struct yaml_node **ret)
{
        const struct yaml_node *root = yaml_root(c->document), *spec = NULL;

        if (root->kind != YAML_MAPPING)
                return yaml_fail(c, root, "a policy is a mapping such as `network: none`, not a %s",
                        root->kind == YAML_SEQUENCE ? "list" : "single scalar");
        for (size_t i = 0; i + 1 < root->items_n; i += 2) {
                const struct yaml_node *key = root->items[i];

                if (key->kind != YAML_SCALAR || key->text_n != 4 || memcmp(key->text, "spec", 4) != 0)
                        continue;
                if (spec)
                        return yaml_fail(c, key, "duplicate key \"spec\"");
                spec = root->items[i + 1];
                if (spec->kind != YAML_MAPPING)
                        return yaml_fail(c, spec, "spec: must be a mapping that holds the policy");
        }
        *ret = spec ? spec : root;
        return 0;
}

int policy_load(const char *file, const char *text, size_t n, struct policy **ret, struct yaml_error *ret_error)
{
        _cleanup_(yaml_document_freep) struct yaml_document *document = NULL;
        _cleanup_(policy_unrefp) struct policy *policy = NULL;
        struct yaml_context c = {.error = ret_error};
        const struct yaml_node *root = NULL;
        int r = yaml_parse(file, text, n, &document, ret_error);

        if (r != 0)
                return r;
        c.document = document;
        policy = calloc(1, sizeof(*policy));
        if (!policy)
                return -ENOMEM;
        policy->refs = 1;
        policy->require_isolation = -1;
        r = find_policy(&c, &root);
        if (r == 0)
                r = yaml_bind(&c, root, policy_fields, COUNT(policy_fields), policy);
        if (r == 0)
                r = sha256_bytes(text, n, policy->sha256);
        if (r != 0)
                return r;
        take_places(root, policy_fields, COUNT(policy_fields), policy->places);
        if (yaml_get(root, "limits"))
                take_places(yaml_get(root, "limits"), limit_fields, COUNT(limit_fields), policy->limit_places);
        finish_limits(&policy->limits);
        *ret = STEAL(policy);
        return 0;
}
