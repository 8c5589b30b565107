/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Values of the broker's configuration that yaml.h does not know: binders for its tables. Pure. */

#include "broker/yaml.h"

/* A list; detail is a value_list. The member is the items' pointer; the count stands at count_offset from it. Absent or
 * []: NULL, 0. */
struct value_list {
        size_t item_bytes;
        ptrdiff_t count_offset;
        size_t most;
        int (*bind)(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *item);
        const void *detail; /* of bind */
};
int value_bind_list(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member);

int value_bind_path(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* char *, absolute */
int value_bind_located(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* struct config_text */
int value_bind_user(
        const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f, void *member); /* char * */
int value_bind_port(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* uint16_t */
int value_bind_address(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* struct hostname */
int value_bind_prefix(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* struct prefix */
int value_bind_name(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* char *, canonical name */
int value_bind_endpoint(const struct yaml_context *c, const struct yaml_node *v, const struct yaml_field *f,
        void *member); /* char *, a service's connect */
