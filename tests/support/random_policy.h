/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random policies and requests for property tests. The seed is the test's, so that a failure comes again. */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/policy_load.h"

#define RANDOM_COUNT(a) (sizeof(a) / sizeof(*(a)))

/* A policy that is known to be valid. */
static inline struct policy *random_load(const char *text)
{
        struct policy *policy = NULL;
        struct yaml_error error = {0};

        if (policy_load("test", text, strlen(text), &policy, &error) != 0) {
                yaml_error_print(&error);
                abort();
        }
        return policy;
}

/* Few words, so that they meet. */

static const char *const random_patterns[] = {"a.org", "*.a.org", "**.a.org", "x.a.org", "*.x.a.org", "**.x.a.org",
        "y.x.a.org", "any.a.org", "b.net", "**.b.net", "8.8.0.0/16", "8.8.8.0/24", "8.8.8.8", "8.0.0.0/7", "10.0.0.0/8",
        "0.0.0.0/0", "2001:4860::/32", "2001:4860:4860::8888", "m.internal", "*.m.internal"};
static const char *const random_hosts[] = {"a.org", "x.a.org", "y.x.a.org", "z.y.x.a.org", "w.a.org", "any.a.org",
        "b.net", "q.b.net", "other.com", "8.8.8.8", "8.8.8.9", "8.8.9.9", "8.9.9.9", "9.9.9.9", "1.1.1.1", "10.1.1.1",
        "[2001:4860::1]", "[2001:4860:4860::8888]", "[2a00::1]", "m.internal", "n.m.internal", "l.internal"};
static const char *const random_ports[] = {"80", "443", "22", "8080", "65535", "1"};
static const char *const random_methods[] = {"GET", "POST", "HEAD", "OTHER", "PUT"};
static const char *const random_paths[] = {"/", "/*", "/a", "/a/*", "/a/b*", "/*b", "/*%2Fb", "/a%2f*"};
static const char *const random_asked_paths[] = {
        "/", "/a", "/a/", "/a/b", "/a/bc", "/xb", "/x", "/x%2Fb", "/a%2fb", "/a%2fx/b", "/a/../b", "*", "/a/b%2Fb"};

struct random_text {
        char bytes[8192];
        size_t n;
};

static inline void random_add(struct random_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void random_add(struct random_text *t, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        t->n += (size_t)vsnprintf(t->bytes + t->n, sizeof(t->bytes) - t->n, format, ap);
        va_end(ap);
}

static inline bool random_often(unsigned *seed, unsigned of_ten)
{
        return (unsigned)rand_r(seed) % 10 < of_ten;
}

static inline const char *random_pick(unsigned *seed, const char *const *words, size_t n)
{
        return words[(size_t)rand_r(seed) % n];
}
#define RANDOM_PICK(seed, words) random_pick(seed, words, RANDOM_COUNT(words))

static inline void random_list(
        struct random_text *t, unsigned *seed, const char *key, const char *const *words, size_t n)
{
        size_t items = 1 + (size_t)rand_r(seed) % 3;

        random_add(t, ", %s: [", key);
        for (size_t i = 0; i < items; i++)
                random_add(
                        t, strcmp(key, "ports") == 0 ? "%s%s" : "%s\"%s\"", i ? ", " : "", random_pick(seed, words, n));
        random_add(t, "]");
}

static inline void random_rule(struct random_text *t, unsigned *seed)
{
        static const char *const protocols[] = {"auto", "tls", "http", "tcp"};
        const char *protocol = random_often(seed, 3) ? RANDOM_PICK(seed, protocols) : NULL;
        bool is_tcp = protocol && strcmp(protocol, "tcp") == 0;

        random_add(t, "  - {pattern: \"%s\"", RANDOM_PICK(seed, random_patterns));
        if (random_often(seed, 3))
                random_add(t, ", action: deny");
        if (random_often(seed, 5))
                random_list(t, seed, "ports", random_ports, RANDOM_COUNT(random_ports));
        if (protocol)
                random_add(t, ", protocol: %s", protocol);
        if (!is_tcp && random_often(seed, 4))
                random_list(t, seed, "http_methods", random_methods, RANDOM_COUNT(random_methods));
        if (!is_tcp && random_often(seed, 4))
                random_list(t, seed, "http_paths", random_paths, RANDOM_COUNT(random_paths));
        if (random_often(seed, 1))
                random_add(t, ", max_connections: %d", 1 + rand_r(seed) % 2);
        random_add(t, "}\n");
}

static inline void random_policy(struct random_text *t, unsigned *seed)
{
        size_t rules = (size_t)rand_r(seed) % 5;

        t->n = 0;
        random_add(t, "network: %s\n",
                random_often(seed, 1)   ? "none"
                : random_often(seed, 3) ? "public"
                                        : "allowlist_domain");
        if (rules)
                random_add(t, "egress_rules:\n");
        while (rules-- > 0)
                random_rule(t, seed);
}

static inline void random_request(unsigned *seed, struct request *ret)
{
        const char *host = RANDOM_PICK(seed, random_hosts);

        *ret = (struct request){.protocol = (enum protocol)(rand_r(seed) % PROTOCOL_MAX_)};
        if (hostname_parse(host, strlen(host), &ret->host) != 0)
                abort();
        ret->port = random_often(seed, 1) ? 0 : (uint16_t)atoi(RANDOM_PICK(seed, random_ports));
        ret->method = random_often(seed, 5) && ret->port ? RANDOM_PICK(seed, random_methods) : NULL;
        ret->path = random_often(seed, 5) && ret->port ? RANDOM_PICK(seed, random_asked_paths) : NULL;
        if (!ret->port)
                ret->protocol = PROTOCOL_AUTO;
}
