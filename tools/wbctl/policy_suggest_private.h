/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What policy_suggest.c gathers and policy_suggest_write.c writes. */

#include "tools/wbctl/policy_suggest.h"

#define NEEDS_MOST   4096u /* hosts and ports */
#define NAMES_MOST   4096u /* that were looked up */
#define METHODS_MOST 16u   /* of a host and port */
#define PATHS_MOST   32u
#define PATH_BYTES   1024u
#define PORTS_MOST   32u /* of a host */

/* A host and port that somebody wanted. */
struct suggest_need {
        struct hostname host;
        uint16_t port;
        uint64_t denied, allowed;
        uint64_t denied_by[REASON_MAX_];
        uint64_t last_ns;
        bool opaque;    /* wanted without saying what for */
        bool inspected; /* and then looked into after all */
        bool tcp;       /* what came was neither TLS nor HTTP */
        bool plain;     /* all of it came as plain HTTP */
        char *methods[METHODS_MOST];
        size_t methods_n;
        char *paths[PATHS_MOST];
        size_t paths_n;
        uint64_t left_out; /* requests with more methods or paths than are kept */
};

/* A name that was looked up in vain. */
struct suggest_name {
        struct hostname host;
        uint64_t denied;
        uint64_t last_ns;
};

struct policy_suggest {
        const struct policy *known;
        bool *used;          /* by the known policy's rule */
        void *needs, *names; /* tsearch(), by host and port */
        size_t needs_n, names_n;
        uint64_t records, malformed, unspeakable, too_many, known_n;
        uint64_t not_suggested[REASON_MAX_];
        uint64_t first_ns, last_ns;
};
