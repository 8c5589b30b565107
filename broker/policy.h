/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A policy and the one decision function (INTERFACES.md, Decision). Policies are immutable and reference-counted
 * (atomically: they are shared between threads). Pure: the broker's workers and `wbctl why` run this same object code.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/address.h"
#include "broker/pattern.h"
#include "broker/reason.h"
#include "broker/request.h"

enum policy_network {
        NETWORK_NONE,
        NETWORK_ALLOWLIST_DOMAIN,
        NETWORK_PUBLIC,
};

enum isolation_class {
        CLASS_STANDARD, /* an unset class is standard */
        CLASS_TRUSTED,
        CLASS_UNTRUSTED,
        CLASS_HOSTILE,
        CLASS_WASM,
        CLASS_DEVCONTAINER,
        CLASS_MAX_,
};

/* Where a value stands in the file, from 1; line 0: it does not. For messages. */
struct policy_place {
        unsigned line, column;
};

/* The keys of limits, of a rule and of a policy, in the order of policy_load.c's fields. */
enum limit_key {
        LIMIT_RATE,
        LIMIT_BURST,
        LIMIT_QUOTA,
        LIMIT_CONNECTIONS,
        LIMIT_REQUESTS,
        LIMIT_KEY_MAX_,
};

enum rule_key {
        RULE_PATTERN,
        RULE_ACTION,
        RULE_PORTS,
        RULE_PROTOCOL,
        RULE_METHODS,
        RULE_PATHS,
        RULE_LIMITS, /* and LIMIT_KEY_MAX_ - 1 more: RULE_LIMITS + LIMIT_BURST, ... */
        RULE_KEY_MAX_ = RULE_LIMITS + LIMIT_KEY_MAX_,
};

enum policy_key {
        POLICY_VERSION,
        POLICY_ISOLATION,
        POLICY_REQUIRE_ISOLATION,
        POLICY_NETWORK,
        POLICY_RULES,
        POLICY_LIMITS,
        POLICY_KEY_MAX_,
};

/* 0 in a member: not limited. */
struct policy_limits {
        uint64_t rate_bps;    /* bytes per second, each direction */
        uint64_t burst_bytes; /* set to its default when rate_bps is */
        uint64_t quota_bytes; /* both directions */
        uint64_t max_connections;
        uint64_t requests_per_s;
        bool quota_set; /* a quota of 0 bytes is one */
};

struct policy_rule {
        struct pattern pattern;
        bool deny;
        enum protocol protocol; /* PROTOCOL_AUTO when absent */
        bool protocol_set;
        uint16_t *ports; /* absent: [80, 443] on an allow rule; on a deny rule ports_n is 0 and means all */
        size_t ports_n;
        char **methods; /* methods_n 0: any */
        size_t methods_n;
        char **paths; /* paths_n 0: any; `*` matches any run of bytes */
        size_t paths_n;
        struct policy_limits limits;
        unsigned line, column; /* in the file, for messages */
        struct policy_place places[RULE_KEY_MAX_];
};

struct policy {
        unsigned refs; /* private, atomic */
        enum policy_network network;
        enum isolation_class isolation;
        int require_isolation; /* enum isolation_tier of broker/isolation.h; -1: absent */
        struct policy_rule *rules;
        size_t rules_n;
        struct policy_limits limits; /* of the whole VM */
        uint8_t sha256[32];          /* of the file's bytes */
        struct policy_place places[POLICY_KEY_MAX_];
        struct policy_place limit_places[LIMIT_KEY_MAX_];
};

struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* takes NULL */

#define DECISION_NO_RULE (-1)

struct decision {
        enum reason reason; /* REASON_ALLOWED, or why not */
        int rule;           /* index in the file from 0, or DECISION_NO_RULE */
        bool inspect;       /* TLS to this host and port must be intercepted to decide */
        const char *floor;  /* the range or name that denied, or NULL. Lives as long as floor and policy. */
};

/* How far a request gets through one rule: what the rule first says no to. In this order. */
enum policy_stage {
        STAGE_HOST,
        STAGE_PORT,
        STAGE_PROTOCOL,
        STAGE_METHOD,
        STAGE_PATH,
        STAGE_PASSED,
        STAGE_MAX_,
};

/* Does a pattern of http_paths match path, as far as bytes go? An encoded slash may stand under a star here. */
bool policy_path_matches(const char *pattern, const char *path);

/* What is not known yet is no ground for an allow rule to say no, and none for a deny rule to deny. */
enum policy_stage policy_rule_stage(const struct policy_rule *rule, const struct request *request);

/*
 * Decides by what is known of the request. Later knowledge (the protocol after the first bytes, a request inside the
 * tunnel) is judged by asking again with the request completed. is_service: is the name one of the operator's own
 * (INTERFACES.md, 6)?
 */
void policy_decide(const struct policy *policy, const struct floor *floor, const struct request *request,
        bool is_service, struct decision *ret);

/*
 * Step 6: may these addresses of an allowed name be dialled? REASON_ALLOWED or REASON_FLOOR_ADDRESS; *ret_floor as in
 * struct decision.
 */
enum reason policy_decide_addresses(
        const struct floor *floor, const struct hostname *addresses, size_t n, const char **ret_floor);

/*
 * What may yet follow on an allowed tunnel to host and port: which protocols some allow rule would let pass. Lets the
 * session choose between waiting for first bytes (auto, tls, http) and opaque (tcp). Index by enum protocol.
 */
void policy_protocols(const struct policy *policy, const struct request *request, bool ret_allowed[PROTOCOL_MAX_]);

/*
 * For a person: what is missing and the rule that would allow it, or that nothing will; that a retry will not help. One
 * line of printable ASCII, also where the request is not (a malformed host is not repeated); truncated at room.
 * POLICY_EXPLAIN_BYTES are enough.
 */
#define POLICY_EXPLAIN_BYTES 1536
void policy_explain(const struct policy *policy, const struct request *request, const struct decision *decision,
        char *ret_text, size_t room);
