/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/path_witness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/policy.h"
#include "tests/support/suite.h"

#define PATTERNS_MOST 5

/* What a rule with these paths, each in a rule of its own, says of a path: for each pattern, matched or not. */
static unsigned verdict_of(char *const *patterns, size_t n, const char *path)
{
        unsigned verdict = 0;

        for (size_t i = 0; i < n; i++) {
                struct policy_rule rule = {.paths = (char **)(uintptr_t)&patterns[i], .paths_n = 1};
                struct request request = {.method = "GET", .path = path};

                if (hostname_parse("a.org", 5, &request.host) != 0)
                        abort();
                rule.pattern.name_n = 5;
                memcpy(rule.pattern.name, "a.org", 6);
                if (policy_rule_stage(&rule, &request) == STAGE_PASSED)
                        verdict |= 1u << i;
        }
        return verdict;
}

/* A path without a dot segment and an encoded slash, of few letters, so that it often matches. */
static void random_text(unsigned *seed, bool with_stars, char *to)
{
        static const char *const pieces[] = {"/", "a", "b", "ab", "aa", ".", "%2F", "%2f", "%", "2", "*", "*"};
        size_t n = (size_t)rand_r(seed) % 6;

        to += sprintf(to, "/");
        while (n-- > 0)
                to += sprintf(to, "%s", pieces[(size_t)rand_r(seed) % (with_stars ? 12 : 10)]);
}

/* No path says anything of random patterns that none of the witnesses says. */
static void test_every_verdict_has_a_witness(void)
{
        unsigned seed = 20261130;
        size_t compared = 0;

        for (int round = 0; round < 400; round++) {
                char texts[PATTERNS_MOST][64], path[64];
                char *patterns[PATTERNS_MOST];
                size_t n = (size_t)rand_r(&seed) % (PATTERNS_MOST + 1);
                bool seen[1u << PATTERNS_MOST] = {false};
                struct path_witnesses w;

                for (size_t i = 0; i < n; i++) {
                        random_text(&seed, true, texts[i]);
                        patterns[i] = texts[i];
                }
                CU_ASSERT_EQUAL_FATAL(path_witnesses_find(patterns, n, &w), 0);
                CU_ASSERT_TRUE(w.complete);
                for (size_t i = 0; i < w.n; i++) {
                        CU_ASSERT_TRUE(request_is_path(w.paths[i], strlen(w.paths[i])));
                        seen[verdict_of(patterns, n, w.paths[i])] = true;
                }
                for (int i = 0; i < 400; i++) {
                        unsigned verdict;

                        random_text(&seed, false, path);
                        verdict = verdict_of(patterns, n, path);
                        if (!seen[verdict]) {
                                printf("\n%s has no witness among %zu, of", path, w.n);
                                for (size_t k = 0; k < n; k++)
                                        printf(" %s", patterns[k]);
                                CU_FAIL("a verdict without a witness");
                                seen[verdict] = true;
                        }
                        compared += verdict != 0;
                }
                path_witnesses_done(&w);
        }
        CU_ASSERT_TRUE(compared > 10000); /* the paths did match something */
}

static void test_what_is_always_there(void)
{
        struct path_witnesses w;
        bool star = false, ambiguous = false, slash = false, plain = false;
        char *all[] = {(char[]){"/*"}};

        CU_ASSERT_EQUAL_FATAL(path_witnesses_find(all, 1, &w), 0);
        for (size_t i = 0; i < w.n; i++) {
                star = star || strcmp(w.paths[i], "*") == 0;
                ambiguous = ambiguous || request_path_is_ambiguous(w.paths[i]);
                slash = slash || request_path_has_encoded_slash(w.paths[i]);
                plain = plain || strcmp(w.paths[i], "/") == 0;
        }
        CU_ASSERT_TRUE(star && ambiguous && slash && plain);
        CU_ASSERT_TRUE(w.complete);
        path_witnesses_done(&w);
}

/* Patterns made to have more states than are followed: that is said, and bounded. */
static void test_too_many_states(void)
{
        enum { N = 12 };
        char texts[N][64];
        char *patterns[N];
        struct path_witnesses w;

        for (size_t i = 0; i < N; i++) {
                (void)snprintf(texts[i], sizeof(texts[i]), "/*%c*%c*", (char)('a' + i), (char)('b' + i));
                patterns[i] = texts[i];
        }
        CU_ASSERT_EQUAL_FATAL(path_witnesses_find(patterns, N, &w), 0);
        CU_ASSERT_FALSE(w.complete);
        CU_ASSERT_TRUE(w.n > 100);
        path_witnesses_done(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"every verdict has a witness", test_every_verdict_has_a_witness},
                {"what is always there", test_what_is_always_there},
                {"too many states", test_too_many_states},
                CU_TEST_INFO_NULL,
        };

        return suite_run("path_witness", tests);
}
