/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/http1_head.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A Connection field that names more is no client's; each name is looked for among all fields. */
#define CONNECTION_NAMES_MAX 100u

enum head_state {
        HEAD_EMPTY_LINES,
        HEAD_IN_FIRST_LINE,
        HEAD_IN_FIELDS,
        HEAD_DONE,
};

static const struct {
        const char *name;
        enum http1_field_id id;
} known_fields[] = {
        {"Host", FIELD_HOST},
        {"Content-Length", FIELD_CONTENT_LENGTH},
        {"Transfer-Encoding", FIELD_TRANSFER_ENCODING},
        {"Connection", FIELD_CONNECTION},
        {"Upgrade", FIELD_UPGRADE},
        {"Expect", FIELD_EXPECT},
        {"Wb-Via", FIELD_WB_VIA},
        /* RFC 9110 7.6.1 and what clients of proxies say; trailers are dropped, so they are not announced. */
        {"HTTP2-Settings", FIELD_HOP_BY_HOP},
        {"Keep-Alive", FIELD_HOP_BY_HOP},
        {"Proxy-Authenticate", FIELD_HOP_BY_HOP},
        {"Proxy-Authentication-Info", FIELD_HOP_BY_HOP},
        {"Proxy-Authorization", FIELD_HOP_BY_HOP},
        {"Proxy-Connection", FIELD_HOP_BY_HOP},
        {"Proxy-Status", FIELD_HOP_BY_HOP}, /* RFC 9209: from here it is the broker's word, which an origin must not put
                                               in its mouth */
        {"TE", FIELD_HOP_BY_HOP},
        {"Trailer", FIELD_HOP_BY_HOP},
};

bool http1_is_token(uint8_t byte)
{
        return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
               (byte && strchr("!#$%&'*+-.^_`|~", byte));
}

bool http1_version(const char *text, size_t n, bool *ret_http10)
{
        if (n != strlen("HTTP/1.1") || memcmp(text, "HTTP/1.", 7) != 0 || (text[7] != '0' && text[7] != '1'))
                return false;
        *ret_http10 = text[7] == '0';
        return true;
}

void http1_head_init(struct http1_head *h, bool empty_lines)
{
        h->state = empty_lines ? HEAD_EMPTY_LINES : HEAD_IN_FIRST_LINE;
        h->fields_n = 0;
        h->used = h->start = h->first = 0;
}

bool http1_head_begun(const struct http1_head *h)
{
        return h->state != HEAD_EMPTY_LINES && h->used;
}

char *http1_head_first_line(struct http1_head *h, size_t *ret_n)
{
        switch ((enum head_state)h->state) {
        case HEAD_EMPTY_LINES: *ret_n = 0; break;
        case HEAD_IN_FIRST_LINE: *ret_n = (size_t)(h->used - h->first); break;
        case HEAD_IN_FIELDS:
        case HEAD_DONE: *ret_n = (size_t)(h->start - 2 - h->first); break;
        }
        return h->text + h->first;
}

static enum http1_field_id identify(const char *name)
{
        for (size_t i = 0; i < sizeof(known_fields) / sizeof(known_fields[0]); i++)
                if (!strcasecmp(name, known_fields[i].name))
                        return known_fields[i].id;
        return FIELD_OTHER;
}

static bool is_blank(char c)
{
        return c == ' ' || c == '\t';
}

/* The line is text[start, end), its control bytes are checked. */
static const char *add_field(struct http1_head *h, size_t start, size_t end)
{
        char *text = h->text;
        size_t colon = start, value, value_end = end;

        if (is_blank(text[start]))
                return "a folded header line";
        while (colon < end && http1_is_token((uint8_t)text[colon]))
                colon++;
        if (colon < end && is_blank(text[colon]))
                return "white space in or behind a header's name";
        if (colon == end || text[colon] != ':')
                return "a header line without name and colon";
        if (colon == start)
                return "a header without a name";
        if (h->fields_n == HTTP1_FIELDS_MAX)
                return "more than 100 header lines";

        for (value = colon + 1; value < end && is_blank(text[value]);)
                value++;
        while (value_end > value && is_blank(text[value_end - 1]))
                value_end--;
        text[colon] = text[value_end] = '\0';

        enum http1_field_id id = identify(text + start);

        h->fields[h->fields_n++] = (struct http1_field){
                .name = (uint16_t)start,
                .name_n = (uint16_t)(colon - start),
                .value = (uint16_t)value,
                .value_n = (uint16_t)(value_end - value),
                .id = (uint8_t)id,
                .dropped = id != FIELD_OTHER && id != FIELD_EXPECT,
        };
        return NULL;
}

/* Appends a byte, if it may follow what is there. */
static const char *add_byte(struct http1_head *h, uint8_t byte)
{
        char previous = h->used ? h->text[h->used - 1] : '\0';

        if (h->used == HTTP1_HEAD_MAX_BYTES)
                return "a head of more than 16 KiB";
        if (byte == '\n' && previous != '\r')
                return "a line that ends in LF without CR";
        if (byte != '\n' && previous == '\r')
                return "a CR that ends no line";
        if ((byte < ' ' && byte != '\t' && byte != '\r' && byte != '\n') || byte == 0x7f)
                return "a control byte";
        if (h->state == HEAD_EMPTY_LINES && byte != '\r' && byte != '\n') {
                h->state = HEAD_IN_FIRST_LINE;
                h->first = h->used;
        }
        if (h->state == HEAD_IN_FIRST_LINE && h->used == h->first && !http1_is_token(byte))
                return "a first line that begins with neither method nor version";
        h->text[h->used++] = (char)byte;
        return NULL;
}

/* A line is complete with its CR LF. */
static enum http1_head_event end_line(struct http1_head *h, const char **ret_detail)
{
        size_t start = h->start, end = h->used - 2u;

        h->start = h->used;
        switch ((enum head_state)h->state) {
        case HEAD_EMPTY_LINES: return HEAD_MORE;
        case HEAD_IN_FIRST_LINE:
                h->text[end] = '\0';
                h->state = HEAD_IN_FIELDS;
                return HEAD_FIRST_LINE;
        case HEAD_IN_FIELDS:
        case HEAD_DONE: break;
        }
        if (start == end) {
                h->state = HEAD_DONE;
                return HEAD_COMPLETE;
        }
        *ret_detail = add_field(h, start, end);
        return *ret_detail ? HEAD_REFUSED : HEAD_MORE;
}

enum http1_head_event http1_head_feed(
        struct http1_head *h, const uint8_t *bytes, size_t n, size_t *ret_taken, const char **ret_detail)
{
        enum http1_head_event event = HEAD_MORE;
        size_t i = 0;

        assert(h->state != HEAD_DONE);
        while (i < n && event == HEAD_MORE) {
                const char *detail = add_byte(h, bytes[i]);

                if (detail) {
                        *ret_detail = detail;
                        event = HEAD_REFUSED;
                } else if (bytes[i++] == '\n') {
                        event = end_line(h, ret_detail);
                }
        }
        *ret_taken = i;
        return event;
}

size_t http1_head_count(const struct http1_head *h, enum http1_field_id id, const char **ret_value)
{
        size_t count = 0;

        for (size_t i = 0; i < h->fields_n; i++) {
                if (h->fields[i].id != id)
                        continue;
                *ret_value = h->text + h->fields[i].value;
                count++;
        }
        return count;
}

void http1_head_drop(struct http1_head *h, enum http1_field_id id)
{
        for (size_t i = 0; i < h->fields_n; i++)
                if (h->fields[i].id == id)
                        h->fields[i].dropped = true;
}

static bool parse_length(const char *text, uint64_t *ret_bytes)
{
        uint64_t bytes = 0;

        if (!*text)
                return false;
        for (; *text; text++) {
                if (*text < '0' || *text > '9')
                        return false;
                uint64_t digit = (uint64_t)(*text - '0');
                if (bytes > (INT64_MAX - digit) / 10)
                        return false;
                bytes = bytes * 10 + digit;
        }
        *ret_bytes = bytes;
        return true;
}

const char *http1_head_framing(
        const struct http1_head *h, bool http10, enum http1_framing *ret_framing, uint64_t *ret_length_bytes)
{
        const char *length = NULL, *coding = NULL;
        size_t lengths = http1_head_count(h, FIELD_CONTENT_LENGTH, &length);
        size_t codings = http1_head_count(h, FIELD_TRANSFER_ENCODING, &coding);
        uint64_t length_bytes = 0;

        if (lengths && codings)
                return "both Content-Length and Transfer-Encoding";
        if (lengths > 1)
                return "more than one Content-Length";
        if (codings && http10)
                return "Transfer-Encoding in HTTP/1.0";
        if (codings > 1 || (codings && strcasecmp(coding, "chunked") != 0))
                return "a Transfer-Encoding that is not exactly chunked";
        if (lengths && !parse_length(length, &length_bytes))
                return "a Content-Length that is no number";

        *ret_framing = codings ? HTTP1_FRAMING_CHUNKED : lengths ? HTTP1_FRAMING_LENGTH : HTTP1_FRAMING_NONE;
        *ret_length_bytes = length_bytes;
        return NULL;
}

/* Cuts the next element out of a list, without the white space around it; false at the end. Elements may be empty. */
static bool next_element(const char **list, const char **ret_element, size_t *ret_n)
{
        const char *start = *list, *end;

        if (!start)
                return false;
        end = strchrnul(start, ',');
        *list = *end ? end + 1 : NULL;
        while (start < end && is_blank(*start))
                start++;
        while (end > start && is_blank(end[-1]))
                end--;
        *ret_element = start;
        *ret_n = (size_t)(end - start);
        return true;
}

static bool is_word(const char *element, size_t n, const char *word)
{
        return n == strlen(word) && !strncasecmp(element, word, n);
}

static void drop_named(struct http1_head *h, const char *name, size_t n)
{
        for (size_t i = 0; i < h->fields_n; i++) {
                struct http1_field *f = &h->fields[i];

                if (f->name_n == n && !strncasecmp(h->text + f->name, name, n))
                        f->dropped = true;
        }
}

const char *http1_head_connection(struct http1_head *h, struct http1_connection *ret)
{
        struct http1_connection c = {0};
        size_t names = 0;

        for (size_t i = 0; i < h->fields_n; i++) {
                const char *list = h->text + h->fields[i].value, *element;
                size_t n;

                if (h->fields[i].id != FIELD_CONNECTION)
                        continue;
                while (next_element(&list, &element, &n)) {
                        for (size_t k = 0; k < n; k++)
                                if (!http1_is_token((uint8_t)element[k]))
                                        return "a Connection that is no list of names";
                        if (++names > CONNECTION_NAMES_MAX)
                                return "a Connection of more than 100 names";
                        c.close |= is_word(element, n, "close");
                        c.upgrade |= is_word(element, n, "upgrade");
                        drop_named(h, element, n);
                }
        }
        *ret = c;
        return NULL;
}

bool http1_head_has_websocket(const struct http1_head *h)
{
        for (size_t i = 0; i < h->fields_n; i++) {
                const char *list = h->text + h->fields[i].value, *element;
                size_t n;

                if (h->fields[i].id != FIELD_UPGRADE)
                        continue;
                while (next_element(&list, &element, &n))
                        if (is_word(element, n, "websocket"))
                                return true;
        }
        return false;
}

void http1_put(struct http1_text *t, const char *bytes, size_t n)
{
        assert(n <= t->room - t->used);
        memcpy(t->to + t->used, bytes, n);
        t->used += n;
}

void http1_puts(struct http1_text *t, const char *text)
{
        http1_put(t, text, strlen(text));
}

void http1_put_number(struct http1_text *t, uint64_t number)
{
        char digits[24];
        int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);

        http1_put(t, digits, (size_t)n);
}

void http1_put_fields(struct http1_text *t, const struct http1_head *h)
{
        for (size_t i = 0; i < h->fields_n; i++) {
                const struct http1_field *f = &h->fields[i];

                if (f->dropped)
                        continue;
                http1_put(t, h->text + f->name, f->name_n);
                http1_puts(t, ": ");
                http1_put(t, h->text + f->value, f->value_n);
                http1_puts(t, "\r\n");
        }
}

void http1_put_framing(struct http1_text *t, enum http1_framing framing, uint64_t length_bytes)
{
        switch (framing) {
        case HTTP1_FRAMING_LENGTH:
                http1_puts(t, "Content-Length: ");
                http1_put_number(t, length_bytes);
                http1_puts(t, "\r\n");
                break;
        case HTTP1_FRAMING_CHUNKED: http1_puts(t, "Transfer-Encoding: chunked\r\n"); break;
        case HTTP1_FRAMING_NONE:
        case HTTP1_FRAMING_UNTIL_CLOSE: break;
        }
}

void http1_put_end(struct http1_text *t, bool upgrade, bool close)
{
        if (upgrade)
                http1_puts(t, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
        else if (close)
                http1_puts(t, "Connection: close\r\n");
        http1_puts(t, "\r\n");
}
