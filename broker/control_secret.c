/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/control_secret.h"

#include <errno.h>
#include <string.h>

#include "broker/secret_answer.h"
#include "broker/secret_delivery.h"
#include "broker/vm_secrets.h"

/* The name of the secret that a request is about, or NULL and it is answered. */
static const char *take_name(const json_t *body, struct control_request *request)
{
        const char *name = json_string_value(json_object_get(body, "secret"));

        if (name && secret_name_is_good(name))
                return name;
        control_answer(request, answer_invalid("`secret` is a name of letters, digits and _"));
        return NULL;
}

/* Why this VM can't be given any, now or ever; NULL: it can. */
static json_t *refuse_vm(const struct vm_entry *e)
{
        struct refusal refusal = {.reason = REASON_REVOKED, .message = "this VM is revoked; remove it and add it anew"};

        if (!e->config.agent)
                return answer_error("this VM was added without an agent, and nobody could give it a secret");
        return e->state == VM_REVOKED ? answer_refusal(-EPERM, &refusal) : NULL;
}

/* text is wiped. */
static json_t *put(struct vm_entry *e, const char *name, json_t *text, uint64_t ttl_ms)
{
        struct refusal refusal = {.reason = REASON_ALLOWED};
        size_t n = json_string_length(text);
        int r;

        if (!json_is_string(text))
                return answer_invalid("`value` is the secret in base64");
        r = vm_secrets_put(e, name, json_string_value(text), n, ttl_ms, &refusal);
        explicit_bzero((char *)(uintptr_t)json_string_value(text), n);
        return r < 0 ? answer_refusal(r, &refusal) : NULL;
}

void control_secret_put(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        uint64_t ttl_ms = 0;
        const char *name = take_name(body, request), *fault = take_ms(body, "ttl_ms", &ttl_ms);
        json_t *answer;

        (void)r;
        if (!name)
                return;
        answer = refuse_vm(e);
        if (!answer && fault)
                answer = answer_invalid(fault);
        if (!answer)
                answer = put(e, name, json_object_get(body, "value"), ttl_ms);
        if (answer)
                control_answer(request, answer);
        else
                secret_delivery_start(e, DELIVERY_PUT, name, request);
}

/* Also one that the guest has from an activation alone, of which the broker knows nothing. */
void control_secret_rm(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        const char *name = take_name(body, request);

        (void)r;
        if (!name)
                return;
        if (vm_secrets_remove(e, name) == 0 && !secret_store_find(vm_secrets_store(e), name))
                control_answer(request, answer_ok());
        else
                secret_delivery_start(e, DELIVERY_REVOKE, name, request);
}

void control_secret_ls(struct registry *r, struct vm_entry *e, const json_t *body, struct control_request *request)
{
        (void)r;
        (void)body;
        secret_delivery_start(e, DELIVERY_LIST, NULL, request);
}
