/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cases cases_open(const char *file)
{
        const char *directory = getenv("WB_CASES");
        char path[4096];
        json_error_t error;
        json_t *array;

        (void)snprintf(path, sizeof(path), "%s/%s", directory ? directory : "tests/cases", file);
        array = json_load_file(path, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
        if (!array || json_array_size(array) == 0) {
                fprintf(stderr, "%s: %s\n", path, array ? "no cases" : error.text);
                exit(1);
        }
        return (struct cases){.array = array};
}

json_t *cases_next(struct cases *cases)
{
        json_t *c = json_array_get(cases->array, cases->at++);

        if (!c) {
                json_decref(cases->array);
                cases->array = NULL;
        }
        return c;
}

void case_check(const json_t *c, bool ok, const char *what, const char *file, unsigned line)
{
        char condition[512];

        if (!ok) {
                (void)snprintf(condition, sizeof(condition), "%s: %s", case_text(c, "id"), what);
                CU_assertImplementation(CU_FALSE, line, condition, file, "", CU_FALSE);
        }
}

const char *case_text(const json_t *c, const char *key)
{
        return json_string_value(json_object_get(c, key));
}

bool case_is_one_of(const json_t *c, const char *key, const char *text)
{
        const json_t *want = json_object_get(c, key);

        if (json_is_string(want))
                return strcmp(json_string_value(want), text) == 0;
        for (size_t i = 0; i < json_array_size(want); i++) {
                const char *one = json_string_value(json_array_get(want, i));

                if (one && strcmp(one, text) == 0)
                        return true;
        }
        return false;
}

static void *allocate(size_t n)
{
        void *p = calloc(1, n + 1);

        if (!p)
                abort();
        return p;
}

static char *from_hex(const char *hex, size_t *ret_n)
{
        size_t n = strlen(hex) / 2;
        char *bytes = allocate(n);

        for (size_t i = 0; i < n; i++) {
                char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

                bytes[i] = (char)strtoul(pair, NULL, 16);
        }
        *ret_n = n;
        return bytes;
}

static char *from_parts(const json_t *parts, size_t *ret_n)
{
        size_t n = 0, at = 0;
        char *bytes;

        for (size_t i = 0; i < json_array_size(parts); i++) {
                const json_t *part = json_array_get(parts, i);

                n += json_string_length(json_array_get(part, 0)) * (size_t)json_integer_value(json_array_get(part, 1));
        }
        bytes = allocate(n);
        for (size_t i = 0; i < json_array_size(parts); i++) {
                const json_t *text = json_array_get(json_array_get(parts, i), 0);
                json_int_t times = json_integer_value(json_array_get(json_array_get(parts, i), 1));

                for (; times > 0; times--) {
                        memcpy(bytes + at, json_string_value(text), json_string_length(text));
                        at += json_string_length(text);
                }
        }
        *ret_n = n;
        return bytes;
}

char *case_bytes(const json_t *c, const char *key, size_t *ret_n)
{
        const json_t *text = json_object_get(c, key);
        const json_t *other;
        char name[64];
        char *copy;

        if (json_is_string(text)) {
                *ret_n = json_string_length(text);
                copy = allocate(*ret_n);
                memcpy(copy, json_string_value(text), *ret_n);
                return copy;
        }
        (void)snprintf(name, sizeof(name), "%s_hex", key);
        other = json_object_get(c, name);
        if (other)
                return from_hex(json_string_value(other), ret_n);
        (void)snprintf(name, sizeof(name), "%s_parts", key);
        other = json_object_get(c, name);
        return other ? from_parts(other, ret_n) : NULL;
}

int cases_run(const char *suite, CU_TestInfo *tests)
{
        CU_SuiteInfo suites[] = {{suite, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
        unsigned failed;

        if (CU_initialize_registry() || CU_register_suites(suites))
                return 1;
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();
        failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
