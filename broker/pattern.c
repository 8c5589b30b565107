/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/pattern.h"

#include <idn2.h>
#include <libpsl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"

/* What is longer is not even looked at for a right spelling. */
#define TEXT_MAX_BYTES 1024u

/* "**." and a name; a CIDR is shorter. */
#define SPELLING_BYTES (HOSTNAME_MAX_BYTES + 4)

static size_t stars_bytes(const char *text)
{
        return strncmp(text, "*.", 2) == 0 ? 2 : strncmp(text, "**.", 3) == 0 ? 3 : 0;
}

static size_t count(const char *text, char c)
{
        size_t n = 0;

        for (; *text; text++)
                n += *text == c;
        return n;
}

static bool is_ascii(const char *text)
{
        for (; *text; text++)
                if ((unsigned char)*text >= 0x80)
                        return false;
        return true;
}

/* An address, maybe with a prefix length, by the look of it: its spelling may yet be wrong. */
static bool looks_like_address(const char *text)
{
        size_t n = strspn(text, "0123456789.");

        return count(text, ':') > 1 || (n > 0 && (text[n] == '\0' || text[n] == '/'));
}

static bool is_number(const char *text)
{
        return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool is_spelling(const char *text, size_t n, const char *spelling)
{
        return strlen(spelling) == n && memcmp(text, spelling, n) == 0;
}

/* Is the address part of text spelled as it is written here? Where RFC 5952 leaves a choice, either will do. */
static bool is_canonical_address(const char *text, const struct prefix *p)
{
        static const uint8_t carries_ipv4[][12] = {
                {0}, {[10] = 0xff, 0xff}, {[8] = 0xff, 0xff}, {0x00, 0x64, 0xff, 0x9b}};
        size_t n = strcspn(text, "/");
        struct hostname address;
        char other[HOSTNAME_IPV6_TEXT_BYTES];

        hostname_from_address(p->kind, p->address, &address);
        if (is_spelling(text, n, address.text))
                return true;
        if (p->kind != HOST_IPV6)
                return false;
        for (size_t i = 0; i < sizeof(carries_ipv4) / sizeof(*carries_ipv4); i++) {
                if (memcmp(p->address, carries_ipv4[i], sizeof(carries_ipv4[i])) != 0)
                        continue;
                for (int dotted = 0; dotted < 2; dotted++) {
                        hostname_format_ipv6(p->address, dotted, other);
                        if (is_spelling(text, n, other))
                                return true;
                }
        }
        return false;
}

/* The functions judge_*() answer NULL, or what is wrong. */
static const char *judge_address(const char *text, struct pattern *ret)
{
        switch (prefix_parse(text, strlen(text), &ret->prefix)) {
        case 0: break;
        case PREFIX_E_HOST_PART: return "a CIDR has no bits set behind its prefix";
        default: return "this is no IP address and no CIDR";
        }
        if (!is_canonical_address(text, &ret->prefix))
                return "an address has one spelling";
        ret->kind = PATTERN_PREFIX;
        return NULL;
}

static const char *judge_wildcard(const char *name)
{
        const psl_ctx_t *psl = psl_builtin();

        /* Without a list nothing is known to be safe. */
        if (!psl || psl_is_public_suffix(psl, name))
                return "a wildcard on a public suffix would cover names of strangers";
        return NULL;
}

/* What stands behind the stars, or the whole. */
static const char *judge_name(const char *name, size_t stars, struct pattern *ret)
{
        struct hostname host;

        if (hostname_parse(name, strlen(name), &host) != 0)
                return "a name has labels of 1 to 63 bytes from a-z 0-9 - _, at most 253 bytes, and its last label is no number";
        if (strcmp(host.text, name) != 0)
                return host.kind == HOST_NAME ? "a name is written in lower case, without a trailing dot"
                                              : "an address has one spelling";
        if (host.kind != HOST_NAME)
                return "a star goes with a name; of addresses, a CIDR covers many";
        ret->kind = stars == 0 ? PATTERN_EXACT : stars == 2 ? PATTERN_BELOW : PATTERN_BELOW_AND_SELF;
        ret->name_n = host.length;
        memcpy(ret->name, host.text, sizeof(ret->name));
        return stars ? judge_wildcard(name) : NULL;
}

/* What people put around a name. */
static const char *judge_surroundings(const char *text)
{
        if (strstr(text, "://"))
                return "a pattern has no scheme";
        if (strchr(text, '@'))
                return "a pattern has no user";
        if (strchr(text, '['))
                return "an IPv6 address has no brackets in a pattern, and no port";
        if (count(text, ':') == 1)
                return "a pattern has no port; ports: is for that";
        if (strpbrk(text, "/?#") && !looks_like_address(text))
                return "a pattern has no path; http_paths: is for that";
        if (!is_ascii(text))
                return "a name in other letters than ASCII is given by its A-label";
        return NULL;
}

static const char *judge(const char *text, struct pattern *ret)
{
        size_t stars = stars_bytes(text);
        const char *why;

        if (!*text)
                return "a pattern is empty";
        for (const char *p = text; *p; p++)
                if ((unsigned char)*p <= 0x20 || *p == 0x7f)
                        return "a pattern has no spaces and no control characters";
        why = judge_surroundings(text);
        if (why)
                return why;
        if (text[strspn(text, "*")] == '\0' || (stars && !text[stars]))
                return "a star alone would cover every name; that is network: public";
        if (strchr(text + stars, '*'))
                return "a star is the whole leftmost label (*. or **.) and stands nowhere else";
        if (!stars && looks_like_address(text))
                return judge_address(text, ret);
        return judge_name(text + stars, stars, ret);
}

/* Cuts off what does not belong to the host: scheme, user, brackets, path, port, trailing dots, spaces. Works in place.
 */
static char *strip(char *text)
{
        char *scheme = strstr(text, "://");
        char *at, *end;

        if (scheme)
                text = scheme + 3;
        text += strspn(text, " ");
        at = strchr(text, '@');
        if (at && at < text + strcspn(text, "/"))
                text = at + 1;
        if (*text == '[') {
                text++;
                text[strcspn(text, "]")] = '\0';
        }
        if (!looks_like_address(text) || strchr(text, '/') == NULL || !is_number(strchr(text, '/') + 1))
                text[strcspn(text, "/?#")] = '\0';
        if (count(text, ':') == 1)
                *strchr(text, ':') = '\0';
        end = text + strlen(text);
        while (end > text && (end[-1] == '.' || end[-1] == ' '))
                *--end = '\0';
        return text;
}

/* The name below the last star, where one stands in the wrong place: "w*.example.org" -> "example.org". */
static const char *below_stars(const char *text)
{
        const char *star = strrchr(text, '*');
        const char *label = star;

        while (label > text && label[-1] != '.')
                label--;
        if (*label == '*' && star[1] != '.')
                return star + 1; /* "*example.org": the dot was forgotten */
        return star + strcspn(star, ".") + (strchr(star, '.') != NULL);
}

/* An address or a CIDR as it is written here. */
static bool respell_address(const char *text, char ret_spelling[SPELLING_BYTES])
{
        size_t n = strcspn(text, "/");
        char whole[PREFIX_TEXT_MAX + 8];
        struct hostname address;
        struct prefix p;

        if (hostname_parse_address(text, n, &address) != 0 &&
                (hostname_parse(text, n, &address) != 0 || address.kind != HOST_IPV4))
                return false;
        if (strlen(text + n) > 4)
                return false;
        (void)snprintf(whole, sizeof(whole), "%.45s%s", address.text, text + n);
        if (prefix_parse(whole, strlen(whole), &p) == PREFIX_E_MALFORMED)
                return false;
        prefix_format(&p, ret_spelling);
        return true;
}

/* The canonical pattern that text most likely means, if any; it may be one that is refused for another reason. */
static bool respell(const char *text, char ret_spelling[SPELLING_BYTES])
{
        _cleanup_free_ char *copy = strdup(text);
        _cleanup_free_ char *a_labels = NULL;
        const char *rest, *stars = "";
        struct hostname host;

        if (!copy)
                return false;
        rest = strip(copy);
        if (respell_address(rest, ret_spelling))
                return true;
        if (strchr(rest, '*')) {
                stars = stars_bytes(rest) == 3 ? "**." : "*.";
                rest = strchr(rest + stars_bytes(rest), '*') ? below_stars(rest) : rest + stars_bytes(rest);
        }
        if (!is_ascii(rest)) {
                if (idn2_lookup_u8((const uint8_t *)rest, (uint8_t **)&a_labels,
                            IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL) != IDN2_OK)
                        return false;
                rest = a_labels;
        }
        if (hostname_parse(rest, strlen(rest), &host) != 0 || (host.kind != HOST_NAME && *stars))
                return false;
        (void)snprintf(ret_spelling, SPELLING_BYTES, "%s%s", stars, host.text);
        return true;
}

int pattern_parse(const char *text, size_t n, struct pattern *ret, char *ret_message, size_t message_room)
{
        _cleanup_free_ char *copy = NULL;
        struct pattern pattern = {.kind = PATTERN_EXACT};
        char spelling[SPELLING_BYTES];
        const char *why, *still;

        if (n > TEXT_MAX_BYTES || (n > 0 && memchr(text, '\0', n))) {
                (void)snprintf(ret_message, message_room, "a pattern has at most 253 bytes and no NUL");
                return PATTERN_E_INVALID;
        }
        copy = strndup(text, n);
        why = copy ? judge(copy, &pattern) : "no memory";
        if (!why) {
                *ret = pattern;
                return 0;
        }
        if (!copy || !respell(copy, spelling) || strcmp(spelling, copy) == 0) {
                (void)snprintf(ret_message, message_room, "%s", why);
                return PATTERN_E_INVALID;
        }
        still = judge(spelling, &pattern);
        (void)snprintf(ret_message, message_room, still ? "%s; %s would be refused too: %s" : "%s; write %s", why,
                spelling, still);
        return PATTERN_E_INVALID;
}

static bool matches_name(const struct pattern *pattern, const char *name, size_t name_n)
{
        size_t n = pattern->name_n;
        const char *tail;

        if (name_n < n)
                return false;
        tail = name + name_n - n;
        if (memcmp(tail, pattern->name, n) != 0)
                return false;
        if (name_n == n)
                return pattern->kind != PATTERN_BELOW;
        return pattern->kind != PATTERN_EXACT && tail[-1] == '.';
}

bool pattern_matches(const struct pattern *pattern, const struct hostname *host)
{
        if (pattern->kind == PATTERN_PREFIX)
                return prefix_contains(&pattern->prefix, host);
        return host->kind == HOST_NAME && matches_name(pattern, host->text, host->length);
}

bool pattern_covers(const struct pattern *a, const struct pattern *b)
{
        struct hostname host;

        if (a->kind == PATTERN_PREFIX || b->kind == PATTERN_PREFIX) {
                if (a->kind != b->kind || a->prefix.bits > b->prefix.bits)
                        return false;
                hostname_from_address(b->prefix.kind, b->prefix.address, &host);
                return prefix_contains(&a->prefix, &host);
        }
        /* The highest name that b may match decides, unless that is a's own, which `*.` does not match. */
        if (a->kind == PATTERN_BELOW && b->kind == PATTERN_BELOW && a->name_n == b->name_n)
                return memcmp(a->name, b->name, a->name_n) == 0;
        if (a->kind == PATTERN_EXACT && b->kind != PATTERN_EXACT)
                return false;
        return matches_name(a, b->name, b->name_n);
}

int pattern_compare(const struct pattern *a, const struct pattern *b)
{
        bool a_is_exact = a->kind == PATTERN_EXACT, b_is_exact = b->kind == PATTERN_EXACT;

        if (a->kind == PATTERN_PREFIX || b->kind == PATTERN_PREFIX)
                return (int)a->prefix.bits - (int)b->prefix.bits;
        if (a_is_exact != b_is_exact)
                return a_is_exact ? 1 : -1;
        if (a->name_n != b->name_n)
                return (int)a->name_n - (int)b->name_n;
        return (b->kind == PATTERN_BELOW_AND_SELF) - (a->kind == PATTERN_BELOW_AND_SELF);
}

void pattern_format(const struct pattern *pattern, char ret_text[PATTERN_TEXT_BYTES])
{
        static const char *const stars[] = {
                [PATTERN_EXACT] = "", [PATTERN_BELOW] = "*.", [PATTERN_BELOW_AND_SELF] = "**."};

        if (pattern->kind == PATTERN_PREFIX)
                prefix_format(&pattern->prefix, ret_text);
        else
                (void)snprintf(ret_text, PATTERN_TEXT_BYTES, "%s%s", stars[pattern->kind], pattern->name);
}
