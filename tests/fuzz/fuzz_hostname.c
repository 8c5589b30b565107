/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as HOST[:PORT]: what is accepted is canonical, and stays what it is when it is parsed again. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/hostname.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct hostname host, again;
        char text[HOSTNAME_MAX_BYTES + 3];
        uint16_t port;

        (void)hostname_parse_address((const char *)data, n, &host);
        if (hostname_parse_with_port((const char *)data, n, &host, &port) != 0)
                return 0;
        assert(host.length == strlen(host.text) && host.length > 0);
        (void)snprintf(text, sizeof(text), host.kind == HOST_IPV6 ? "[%s]" : "%s", host.text);
        if (hostname_parse(text, strlen(text), &again) != 0 || memcmp(&host, &again, sizeof(host)) != 0)
                abort();
        return 0;
}
