/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A guest's conversation on port 1026: it asks for names, the VM's policy answers. Nothing is resolved for it, and no
 * name goes further than the audit log. Questions are answered at once and in order; a guest that does not read its
 * answers is not read either.
 */

struct service;
struct vm;

#define SERVICES_MAX 4u /* of one VM; an agent needs one */

/* Takes fd, also where it fails. 0, -ENOBUFS, -ENOMEM. */
int service_new(struct vm *vm, int fd);
void service_free(struct service *s);
