/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/redirect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "guest/fake_pool.h"
#include "proto/base/cleanup.h"

#define TABLE            "wbagent"
#define CHAIN            "output"
#define NAT_OUTPUT       (-100) /* NF_IP_PRI_NAT_DST: netfilter_ipv4.h, which does not go with netinet/in.h */
#define ORIGINAL_DST     80     /* SO_ORIGINAL_DST, the same */
#define IPV4_DESTINATION 16     /* its offset in the header */
#define BATCH_BYTES      2048u

/* Newer than the headers of Debian 11; linux/netfilter/nf_tables.h of 5.12: the table goes with the socket. */
#define TABLE_IS_OWNED 0x2u

/* A batch of messages in the making. It is of one size, and nothing in it depends on any input. */
struct batch {
        size_t n;
        uint32_t sequence;
        uint8_t bytes[BATCH_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
};

static void *extend(struct batch *b, size_t n)
{
        void *at = b->bytes + b->n;

        b->n += NLMSG_ALIGN(n); /* it was zeroed */
        return at;
}

/* Answers where it begins, for end_message(). */
static size_t begin_message(struct batch *b, uint16_t type, uint16_t flags, uint8_t family, uint16_t resource)
{
        size_t start = b->n;
        struct nlmsghdr *header = extend(b, sizeof(*header));
        struct nfgenmsg *general = extend(b, sizeof(*general));

        header->nlmsg_type = type;
        header->nlmsg_flags = NLM_F_REQUEST | flags;
        header->nlmsg_seq = b->sequence++;
        general->nfgen_family = family;
        general->version = NFNETLINK_V0;
        general->res_id = htons(resource);
        return start;
}

static void end_message(struct batch *b, size_t start)
{
        struct nlmsghdr *header = (struct nlmsghdr *)(void *)(b->bytes + start);

        header->nlmsg_len = (uint32_t)(b->n - start);
}

static size_t begin_table_message(struct batch *b, uint16_t message, uint16_t flags)
{
        return begin_message(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | message), NLM_F_CREATE | flags, NFPROTO_IPV4, 0);
}

static void put(struct batch *b, uint16_t type, const void *value, size_t n)
{
        struct nlattr *a = extend(b, NLA_HDRLEN + n);

        a->nla_type = type;
        a->nla_len = (uint16_t)(NLA_HDRLEN + n);
        memcpy((uint8_t *)a + NLA_HDRLEN, value, n);
}

static void put_text(struct batch *b, uint16_t type, const char *text)
{
        put(b, type, text, strlen(text) + 1);
}

static void put_number(struct batch *b, uint16_t type, uint32_t number)
{
        number = htonl(number);
        put(b, type, &number, sizeof(number));
}

static size_t begin_nest(struct batch *b, uint16_t type)
{
        size_t start = b->n;
        struct nlattr *a = extend(b, NLA_HDRLEN);

        a->nla_type = type | NLA_F_NESTED;
        return start;
}

static void end_nest(struct batch *b, size_t start)
{
        struct nlattr *a = (struct nlattr *)(void *)(b->bytes + start);

        a->nla_len = (uint16_t)(b->n - start);
}

/* An expression of a rule: an element with its name and, in another nest, its attributes. */
struct expression {
        size_t element, data;
};

static struct expression begin_expression(struct batch *b, const char *name)
{
        struct expression e = {.element = begin_nest(b, NFTA_LIST_ELEM)};

        put_text(b, NFTA_EXPR_NAME, name);
        e.data = begin_nest(b, NFTA_EXPR_DATA);
        return e;
}

static void end_expression(struct batch *b, struct expression e)
{
        end_nest(b, e.data);
        end_nest(b, e.element);
}

static void put_value(struct batch *b, uint16_t type, const void *value, size_t n)
{
        size_t nest = begin_nest(b, type);

        put(b, NFTA_DATA_VALUE, value, n);
        end_nest(b, nest);
}

static void put_comparison(struct batch *b, const void *value, size_t n)
{
        struct expression e = begin_expression(b, "cmp");

        put_number(b, NFTA_CMP_SREG, NFT_REG_1);
        put_number(b, NFTA_CMP_OP, NFT_CMP_EQ);
        put_value(b, NFTA_CMP_DATA, value, n);
        end_expression(b, e);
}

/* meta l4proto tcp */
static void put_is_tcp(struct batch *b)
{
        const uint8_t tcp = IPPROTO_TCP;
        struct expression e = begin_expression(b, "meta");

        put_number(b, NFTA_META_DREG, NFT_REG_1);
        put_number(b, NFTA_META_KEY, NFT_META_L4PROTO);
        end_expression(b, e);
        put_comparison(b, &tcp, sizeof(tcp));
}

/* ip daddr 198.18.0.0/15 */
static void put_is_of_pool(struct batch *b)
{
        const uint32_t base = htonl(FAKE_POOL_BASE), mask = htonl(~UINT32_C(0) << (32u - FAKE_POOL_PREFIX_BITS)),
                       none = 0;
        struct expression e = begin_expression(b, "payload");

        put_number(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
        put_number(b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
        put_number(b, NFTA_PAYLOAD_OFFSET, IPV4_DESTINATION);
        put_number(b, NFTA_PAYLOAD_LEN, sizeof(base));
        end_expression(b, e);

        e = begin_expression(b, "bitwise");
        put_number(b, NFTA_BITWISE_SREG, NFT_REG_1);
        put_number(b, NFTA_BITWISE_DREG, NFT_REG_1);
        put_number(b, NFTA_BITWISE_LEN, sizeof(base));
        put_value(b, NFTA_BITWISE_MASK, &mask, sizeof(mask));
        put_value(b, NFTA_BITWISE_XOR, &none, sizeof(none));
        end_expression(b, e);
        put_comparison(b, &base, sizeof(base));
}

/* redirect to :port */
static void put_redirect(struct batch *b, uint16_t port)
{
        const uint16_t wire_port = htons(port);
        struct expression e = begin_expression(b, "immediate");

        put_number(b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
        put_value(b, NFTA_IMMEDIATE_DATA, &wire_port, sizeof(wire_port));
        end_expression(b, e);
        e = begin_expression(b, "redir");
        put_number(b, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
        end_expression(b, e);
}

static void put_table(struct batch *b)
{
        size_t start = begin_table_message(b, NFT_MSG_NEWTABLE, NLM_F_EXCL);

        put_text(b, NFTA_TABLE_NAME, TABLE);
        put_number(b, NFTA_TABLE_FLAGS, TABLE_IS_OWNED);
        end_message(b, start);
}

/* type nat hook output priority dstnat */
static void put_chain(struct batch *b)
{
        size_t start = begin_table_message(b, NFT_MSG_NEWCHAIN, 0), hook;

        put_text(b, NFTA_CHAIN_TABLE, TABLE);
        put_text(b, NFTA_CHAIN_NAME, CHAIN);
        put_text(b, NFTA_CHAIN_TYPE, "nat");
        hook = begin_nest(b, NFTA_CHAIN_HOOK);
        put_number(b, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
        put_number(b, NFTA_HOOK_PRIORITY, (uint32_t)NAT_OUTPUT);
        end_nest(b, hook);
        end_message(b, start);
}

static void put_rule(struct batch *b, uint16_t port)
{
        size_t start = begin_table_message(b, NFT_MSG_NEWRULE, NLM_F_APPEND | NLM_F_ACK), expressions;

        put_text(b, NFTA_RULE_TABLE, TABLE);
        put_text(b, NFTA_RULE_CHAIN, CHAIN);
        expressions = begin_nest(b, NFTA_RULE_EXPRESSIONS);
        put_is_tcp(b);
        put_is_of_pool(b);
        put_redirect(b, port);
        end_nest(b, expressions);
        end_message(b, start);
}

/* The answers of one batch: 0 once the rule stands (it alone asks for an acknowledgement), or the first error. */
static int hear(int fd)
{
        uint8_t bytes[4096] __attribute__((aligned(NLMSG_ALIGNTO)));
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        const struct nlmsghdr *header = (const struct nlmsghdr *)(const void *)bytes;

        if (n < 0)
                return -errno;
        if ((size_t)n < NLMSG_LENGTH(sizeof(struct nlmsgerr)) || header->nlmsg_type != NLMSG_ERROR)
                return -EBADMSG;
        return ((const struct nlmsgerr *)NLMSG_DATA(header))->error;
}

int redirect_start(uint16_t port, int *ret_fd)
{
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
        const struct timeval limit = {.tv_sec = 2};
        struct batch b = {0};
        int r;

        if (fd < 0)
                return -errno;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        end_message(&b, begin_message(&b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
        put_table(&b);
        put_chain(&b);
        put_rule(&b, port);
        end_message(&b, begin_message(&b, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
        if (send(fd, b.bytes, b.n, 0) < 0)
                return -errno;
        r = hear(fd);
        if (r < 0)
                return r;
        *ret_fd = steal_fd(&fd);
        return 0;
}

int redirect_find_target(int fd, struct sockaddr_in *ret)
{
        struct sockaddr_in a;
        socklen_t n = sizeof(a);

        if (getsockopt(fd, IPPROTO_IP, ORIGINAL_DST, &a, &n) < 0)
                return -errno;
        if (n != sizeof(a) || a.sin_family != AF_INET)
                return -EADDRNOTAVAIL;
        *ret = a;
        return 0;
}
