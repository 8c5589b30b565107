/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/request.h"

#include <assert.h>
#include <string.h>

static const char *const via_names[] = {
        [VIA_CONNECT] = "connect",
        [VIA_HTTP] = "http",
        [VIA_SOCKS5] = "socks5",
        [VIA_TRANSPARENT] = "transparent",
        [VIA_DNS] = "dns",
        [VIA_INSPECT] = "inspect",
};
static_assert(sizeof(via_names) / sizeof(*via_names) == VIA_MAX_, "a via has no name");

static const char *const protocol_names[] = {
        [PROTOCOL_AUTO] = "auto",
        [PROTOCOL_TLS] = "tls",
        [PROTOCOL_HTTP] = "http",
        [PROTOCOL_TCP] = "tcp",
};
static_assert(sizeof(protocol_names) / sizeof(*protocol_names) == PROTOCOL_MAX_, "a protocol has no name");

const char *via_name(enum via via)
{
        assert(via < VIA_MAX_);
        return via_names[via];
}

const char *protocol_name(enum protocol protocol)
{
        assert(protocol < PROTOCOL_MAX_);
        return protocol_names[protocol];
}

bool request_is_method(const char *text, size_t n)
{
        static const char marks[] = "!#$%&'*+-.^_`|~";

        for (size_t i = 0; i < n; i++) {
                char c = text[i];
                bool is_alphanumeric = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

                if (!is_alphanumeric && (c == '\0' || !strchr(marks, c)))
                        return false;
        }
        return n > 0;
}

bool request_is_path(const char *text, size_t n)
{
        if (n == 1 && text[0] == '*')
                return true;
        for (size_t i = 0; i < n; i++)
                if (text[i] < 0x21 || text[i] > 0x7e || text[i] == '?' || text[i] == '#')
                        return false;
        return n > 0 && text[0] == '/';
}

/* Is text at this place the byte percent-encoded, whose second digit is low (in lower case)? */
static bool is_encoded(const char *text, char high, char low)
{
        return text[0] == '%' && text[1] == high && (text[2] == low || text[2] == low - 'a' + 'A');
}

bool request_is_encoded_slash(const char *path)
{
        return is_encoded(path, '2', 'f');
}

bool request_path_has_encoded_slash(const char *path)
{
        for (; *path; path++)
                if (request_is_encoded_slash(path))
                        return true;
        return false;
}

/* The length of a slash at this place, as it may be read: itself or encoded. */
static size_t slash_bytes(const char *path)
{
        return *path == '/' ? 1 : request_is_encoded_slash(path) ? 3 : 0;
}

/* Is the segment that begins here one dot or two, each maybe encoded? */
static bool is_dot_segment(const char *segment)
{
        size_t dots = 0;

        while (*segment == '.' || is_encoded(segment, '2', 'e')) {
                segment += *segment == '.' ? 1 : 3;
                dots++;
        }
        return (dots == 1 || dots == 2) && (*segment == '\0' || slash_bytes(segment));
}

bool request_path_is_ambiguous(const char *path)
{
        for (; *path; path++) {
                size_t slash = slash_bytes(path);

                if (*path == '\\' || is_encoded(path, '5', 'c'))
                        return true;
                if (slash && is_dot_segment(path + slash))
                        return true;
        }
        return false;
}
