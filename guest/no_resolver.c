/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libevent's utilities can look up names, and glibc's functions for that would bring its whole resolver and NSS into a
 * static program, which then looks for shared libraries at run time. The agent looks up nothing (the broker does):
 * these take glibc's place in the link, and fail.
 */

#include <netdb.h>
#include <stddef.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *req, struct addrinfo **pai)
{
        (void)name;
        (void)service;
        (void)req;
        (void)pai;
        return EAI_FAIL;
}

void freeaddrinfo(struct addrinfo *ai)
{
        (void)ai;
}

const char *gai_strerror(int code)
{
        (void)code;
        return "no resolver";
}

struct servent *getservbyname(const char *name, const char *proto)
{
        (void)name;
        (void)proto;
        return NULL;
}

struct protoent *getprotobynumber(int proto)
{
        (void)proto;
        return NULL;
}
