/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/fake_route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "guest/fake_pool.h"
#include "proto/base/cleanup.h"

struct request {
        struct nlmsghdr header;
        struct rtmsg route;
        struct rtattr destination_head;
        uint32_t destination;
        struct rtattr interface_head;
        uint32_t interface;
        struct rtattr source_head;
        uint32_t source;
};

struct answer {
        struct nlmsghdr header;
        struct nlmsgerr error;
};

static int add(void)
{
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        struct request request = {
                .header = {.nlmsg_len = sizeof(request),
                        .nlmsg_type = RTM_NEWROUTE,
                        .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK},
                .route = {.rtm_family = AF_INET,
                        .rtm_dst_len = FAKE_POOL_PREFIX_BITS,
                        .rtm_table = RT_TABLE_LOCAL,
                        .rtm_protocol = RTPROT_STATIC,
                        .rtm_scope = RT_SCOPE_HOST,
                        .rtm_type = RTN_LOCAL},
                .destination_head = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_DST},
                .destination = htonl(FAKE_POOL_BASE),
                .interface_head = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_OIF},
                .interface = if_nametoindex("lo"),
                /* Else a connection's two ends would have one address, and could be one socket. */
                .source_head = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_PREFSRC},
                .source = htonl(INADDR_LOOPBACK),
        };
        uint8_t bytes[512]; /* the answer repeats the question */
        struct answer answer;
        ssize_t n;

        if (fd < 0)
                return -errno;
        if (!request.interface)
                return -ENODEV;
        if (send(fd, &request, sizeof(request), 0) < 0)
                return -errno;
        n = recv(fd, bytes, sizeof(bytes), 0);
        if (n < 0)
                return -errno;
        if ((size_t)n < sizeof(answer))
                return -EBADMSG;
        memcpy(&answer, bytes, sizeof(answer));
        if (answer.header.nlmsg_type != NLMSG_ERROR)
                return -EBADMSG;
        return answer.error.error;
}

/* Only an address that is the machine's own can be bound. */
static bool is_there(void)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(FAKE_POOL_BASE + 1)}};

        return fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
}

int fake_route_add(void)
{
        int r = add();

        return r < 0 && is_there() ? 0 : r;
}
