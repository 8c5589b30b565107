/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/config_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/address.h"
#include "broker/config.h"
#include "proto/base/cleanup.h"

int value_bind_list(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        const struct value_list *list = f->detail;
        const struct yaml_field item_field = {.key = f->key, .bind = list->bind, .detail = list->detail};
        size_t *count = (size_t *)(void *)((char *)member + list->count_offset);
        char *items;

        if (v->kind != YAML_SEQUENCE)
                return yaml_fail(c, v, "%s must be a list", f->key);
        if (v->items_n > list->most)
                return yaml_fail(c, v, "%s has more than %zu items", f->key, list->most);
        if (v->items_n == 0)
                return 0;
        items = calloc(v->items_n, list->item_bytes);
        if (!items)
                return -ENOMEM;
        /* The target owns them from here on, so that a failure below is freed with it. */
        *(void **)member = items;
        *count = v->items_n;
        for (size_t i = 0; i < v->items_n; i++) {
                int r = list->bind(c, v->items[i], &item_field, items + i * list->item_bytes);

                if (r != 0)
                        return r;
        }
        return 0;
}

int value_bind_path(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        int r = yaml_bind_string(c, v, f, member);

        if (r != 0)
                return r;
        return v->text[0] == '/' ? 0 : yaml_fail(c, v, "%s must be an absolute path", f->key);
}

int value_bind_located(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct config_text *to = member;

        to->line = v->line;
        to->column = v->column;
        return yaml_bind_string(c, v, f, &to->text);
}

int value_bind_user(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        int r = yaml_bind_string(c, v, f, member);

        if (r != 0)
                return r;
        return v->text_n > 0 ? 0 : yaml_fail(c, v, "%s must not be empty; leave it out to stay as started", f->key);
}

int value_bind_port(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        static const struct yaml_range range = {1, UINT16_MAX};
        const struct yaml_field number = {.key = f->key, .detail = &range};
        uint64_t port = 0;
        int r = yaml_bind_u64(c, v, &number, &port);

        if (r == 0)
                *(uint16_t *)member = (uint16_t)port;
        return r;
}

int value_bind_address(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        if (v->kind != YAML_SCALAR || hostname_parse_address(v->text, v->text_n, member) != 0)
                return yaml_fail(c, v, "%s wants IP addresses such as 9.9.9.9 or 2620:fe::fe, without a port", f->key);
        return 0;
}

int value_bind_prefix(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct prefix p;
        char right[PREFIX_TEXT_MAX];
        int r = v->kind == YAML_SCALAR ? prefix_parse(v->text, v->text_n, &p) : PREFIX_E_MALFORMED;

        if (r == PREFIX_E_HOST_PART) {
                prefix_format(&p, right);
                return yaml_fail(c, v, "bits are set behind the prefix; write %s", right);
        }
        if (r != 0)
                return yaml_fail(c, v, "%s wants addresses or prefixes such as 10.0.0.0/8 or fd00::/8", f->key);
        *(struct prefix *)member = p;
        return 0;
}

int value_bind_name(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct hostname name;

        if (v->kind != YAML_SCALAR || hostname_parse(v->text, v->text_n, &name) != 0 || name.kind != HOST_NAME)
                return yaml_fail(c, v, "%s wants a host name such as mirror.example.org", f->key);
        if (strcmp(name.text, v->text) != 0)
                return yaml_fail(c, v, "write the name as %s", name.text);
        return yaml_bind_string(c, v, f, member);
}

/* What no service may be, so that a slip of the operator's does not open the host or a cloud's credentials to guests.
 */
static const struct {
        const char *prefix;
        const char *what;
} never[] = {
        {"0.0.0.0/8", "the host itself"},
        {"127.0.0.0/8", "loopback"},
        {"169.254.0.0/16", "link-local (cloud metadata)"},
        {"168.63.129.16/32", "a cloud's metadata"},
        {"100.100.100.200/32", "a cloud's metadata"},
        {"192.0.0.192/32", "a cloud's metadata"},
        {"224.0.0.0/4", "multicast"},
        {"255.255.255.255/32", "broadcast"},
        {"::/96", "the host itself"},
        {"::ffff:0:0/96", "an IPv4 address in IPv6; write the IPv4 address"},
        {"64:ff9b::/96", "an IPv4 address in IPv6; write the IPv4 address"},
        {"64:ff9b:1::/48", "an IPv4 address in IPv6; write the IPv4 address"},
        {"2002::/16", "an IPv4 address in IPv6; write the IPv4 address"},
        {"fd00:ec2::254/128", "a cloud's metadata"},
        {"fd20:ce::254/128", "a cloud's metadata"},
        {"fe80::/10", "link-local"},
        {"ff00::/8", "multicast"},
};

static const char *find_never(const struct hostname *address)
{
        for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++) {
                struct prefix p;

                if (prefix_parse(never[i].prefix, strlen(never[i].prefix), &p) == 0 && prefix_contains(&p, address))
                        return never[i].what;
        }
        return NULL;
}

int value_bind_endpoint(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member)
{
        struct hostname address;
        const char *what;
        uint16_t port;

        if (v->kind != YAML_SCALAR)
                return yaml_fail(c, v, "%s must be \"ADDRESS:PORT\" or \"unix:/PATH\"", f->key);
        if (strncmp(v->text, "unix:", 5) == 0) {
                if (v->text[5] != '/' || v->text_n - 5 >= 108)
                        return yaml_fail(c, v, "unix: wants an absolute path of at most 107 bytes");
                return yaml_bind_string(c, v, f, member);
        }
        if (hostname_parse_with_port(v->text, v->text_n, &address, &port) != 0 || port == 0 ||
                address.kind == HOST_NAME)
                return yaml_fail(c, v, "%s must be \"ADDRESS:PORT\" or \"unix:/PATH\"; names are not resolved", f->key);
        what = find_never(&address);
        if (what)
                return yaml_fail(c, v, "a service is never at %s: %s", address.text, what);
        return yaml_bind_string(c, v, f, member);
}
