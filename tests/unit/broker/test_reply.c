/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/reply.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "broker/http1.h"
#include "tests/support/suite.h"

/* The text of one answer; the caller frees it. */
static char *text_of(const struct reply_problem *problem)
{
        struct budget budget = {.most_bytes = 65536};
        struct buffer out;

        buffer_init(&out, &budget);
        CU_ASSERT_EQUAL_FATAL(reply_problem(&out, problem), 0);
        char *text = strndup((const char *)buffer_data(&out), buffer_used(&out));
        buffer_done(&out);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
        return text;
}

/* Every reason that is answered over HTTP: a head our own strict parser takes, the row's status and error, a body that
 * is JSON. */
static void test_every_reason(void)
{
        for (enum reason reason = REASON_NETWORK_NONE; reason < REASON_MAX_; reason++) {
                const struct reason_info *info = reason_info(reason);
                struct reply_problem problem = {.reason = reason, .host = "a.example.org", .port = 443, .close = true};

                if (!info->http_status)
                        continue;
                char *text = text_of(&problem);
                struct http1_response *head = calloc(1, sizeof(*head));
                struct http1_exchange exchange = {0};
                size_t taken;

                CU_ASSERT_PTR_NOT_NULL_FATAL(head);
                http1_response_init(head, &exchange);
                CU_ASSERT_EQUAL(http1_response_feed(head, (uint8_t *)text, strlen(text), &taken), 0);
                CU_ASSERT_EQUAL(head->status, (unsigned)info->http_status);
                CU_ASSERT_EQUAL(head->length_bytes, strlen(text) - taken);
                CU_ASSERT_FALSE(head->keep_alive);
                CU_ASSERT_PTR_NOT_NULL(strstr(text, info->proxy_status));

                json_t *body = json_loads(text + taken, 0, NULL);
                CU_ASSERT_PTR_NOT_NULL_FATAL(body);
                CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(body, "reason")), info->name);
                CU_ASSERT_EQUAL(json_integer_value(json_object_get(body, "status")), info->http_status);
                CU_ASSERT_EQUAL(json_integer_value(json_object_get(body, "port")), 443);
                CU_ASSERT(strlen(json_string_value(json_object_get(body, "detail"))) > 10);
                json_decref(body);
                free(head);
                free(text);
        }
}

static void test_detail_that_is_no_utf8(void)
{
        struct reply_problem problem = {.reason = REASON_NO_RULE, .detail = "\xff\xfe"};
        char *text = text_of(&problem);

        CU_ASSERT_PTR_NOT_NULL(strstr(text, "No rule of this VM's policy"));
        free(text);
}

static void test_head_has_no_body(void)
{
        struct reply_problem problem = {.reason = REASON_NO_RULE, .head = true, .retry_after_s = 7};
        char *text = text_of(&problem);

        CU_ASSERT_PTR_NULL(strchr(text, '{'));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "Retry-After: 7\r\n"));
        CU_ASSERT_PTR_NULL(strstr(text, "Connection: close"));
        CU_ASSERT_STRING_EQUAL(text + strlen(text) - 4, "\r\n\r\n");
        free(text);
}

static void test_alert(void)
{
        struct budget budget = {.most_bytes = 65536};
        struct buffer out;

        buffer_init(&out, &budget);
        CU_ASSERT_EQUAL(reply_alert(&out, REPLY_ALERT_UNRECOGNIZED_NAME), 0);
        CU_ASSERT_EQUAL_FATAL(buffer_used(&out), 7);
        CU_ASSERT_EQUAL(memcmp(buffer_data(&out), "\x15\x03\x03\x00\x02\x02\x70", 7), 0);
        buffer_done(&out);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"every reason", test_every_reason},
                {"a detail that is no UTF-8", test_detail_that_is_no_utf8},
                {"HEAD has no body", test_head_has_no_body},
                {"a TLS alert", test_alert},
                CU_TEST_INFO_NULL,
        };

        return suite_run("reply", tests);
}
